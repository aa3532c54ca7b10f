"""Our model of pronunciation beside the network of the package g2p_en, on words that neither has seen.

g2p_en was trained on NLTK's copy of CMUdict, and so on the words that we hold out. What is new to it are headwords that came
into the dictionary later. They are found by comparison with an older edition, 0.7b of 2014, which comes with the package
pronouncing 0.1.5. Of these, the ones in our dev and test parts are new to our model too; all of them together are asked of
g2p_en alone. A sample of older words from the dev part, which g2p_en was trained on and our model was not, shows what that is
worth. Words are scored without stress, against the closest pronunciation. No choice was made by these scores; but the dev words
did choose our training, and the new test words are scored here once more, besides the scores of the card.

The two models are compared word by word, both greedy: right_alone counts the words that one has right and the other wrong, and
chance is the two-sided sign test: how likely a split at least as uneven would be if each of these were a toss of a coin.

Both packages are optional, and neither is run: unpack their files anywhere, and say where.

    pip download --no-deps g2p_en==2.1.0 pronouncing==0.1.5
    unzip g2p_en-2.1.0-py3-none-any.whl; tar xzf pronouncing-0.1.5.tar.gz
    python experiments/g2p_en.py --weights g2p_en/checkpoint20.npz --older pronouncing-0.1.5/pronouncing/cmudict-0.7b

It writes g2p_en.csv anew; half a minute on one core. Errors are in percent; the deviation is that of the words.
"""

import argparse
import math
import re
from pathlib import Path

import numpy as np

from lib.study import checkpoints, pronunciation, records
from lib.study.pronunciation import Entry, load_cmudict
from lib.study.scores import error_rates
from lib.study.seq2seq import transcribe

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_suffix(".csv")
LETTERS = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")
BEGIN, END = 2, 3  # of the phonemes
LONGEST = 20  # phonemes, as in the package
# The package numbers them in the order of the alphabet, with stress; there is one UW without.
_VOWELS, _CONSONANTS = pronunciation.PHONEMES.names[3:18], pronunciation.PHONEMES.names[18:]
PHONEMES = ("<pad>", "<unk>", "<s>", "</s>", *sorted([*_CONSONANTS, "UW", *(v + s for v in _VOWELS for s in "012")]))


class Recurrent:
    """The network of g2p_en: a GRU reads the letters, and its last state begins another, which writes the phonemes.

    Args:
        weights: `checkpoint20.npz` of the package.

    Source: Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder"; the gates as in torch.nn.GRU.
    """

    def __init__(self, weights: Path):
        self.weights = dict(np.load(weights))

    def parameters(self) -> int:
        """How many numbers it has learned."""
        return sum(value.size for value in self.weights.values())

    def transcribe(self, spelling: str) -> tuple[str, ...]:
        """The likeliest phoneme at each step, without stress."""
        h = np.zeros(self.weights["enc_w_hh"].shape[1], dtype=np.float32)
        for letter in (*spelling, "</s>"):
            h = self._step("enc", LETTERS.index(letter), h)
        token, sounds = BEGIN, []
        for _ in range(LONGEST):
            h = self._step("dec", token, h)
            token = int((self.weights["fc_w"] @ h + self.weights["fc_b"]).argmax())
            if token == END:
                break
            sounds.append(re.sub(r"\d", "", PHONEMES[token]))
        return tuple(sounds)

    def _step(self, side: str, token: int, h: np.ndarray) -> np.ndarray:
        w = self.weights
        of_input = w[f"{side}_w_ih"] @ w[f"{side}_emb"][token] + w[f"{side}_b_ih"]
        of_state = w[f"{side}_w_hh"] @ h + w[f"{side}_b_hh"]
        (reset, update, new), (reset_h, update_h, new_h) = np.split(of_input, 3), np.split(of_state, 3)
        reset, update = (1 / (1 + np.exp(-x)) for x in (reset + reset_h, update + update_h))
        new = np.tanh(new + reset * new_h)
        return (1 - update) * new + update * h


def headwords(file: Path) -> set[str]:
    """The words of the letters a–z in an edition of the dictionary, in small letters."""
    found = (re.match(r"([a-z]+)(?:\(\d+\))?\s", line.lower()) for line in file.read_text(encoding="latin-1").splitlines())
    return {match[1] for match in found if match}


def words_of(entries: list[Entry]) -> list[str]:
    """Their spellings."""
    return [entry.spelling for entry in entries]


def sign_test(a: int, b: int) -> float:
    """The chance of a split of a + b tosses of a coin that is at least as uneven as this one."""
    n = a + b
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(min(a, b) + 1)) / 2**n)


def right(predictions: list, entries: list[Entry]) -> list[bool]:
    """Whether each word is written as one of its pronunciations."""
    return [tuple(said) in map(tuple, entry.sounds) for said, entry in zip(predictions, entries, strict=True)]


def row(words: str, model: str, predictions: list, entries: list[Entry], other: list | None = None) -> dict:
    """One line of the table; `other` holds what the model says that it is compared with."""
    rates = error_rates(predictions, [entry.sounds for entry in entries])
    paired = {"right_alone": None, "chance": None}
    if other is not None:
        pairs = list(zip(right(predictions, entries), right(other, entries), strict=True))
        alone = pairs.count((True, False))
        paired = {"right_alone": alone, "chance": round(sign_test(alone, pairs.count((False, True))), 4)}
    deviation = math.sqrt(rates.words * (1 - rates.words) / len(entries))
    figures = {"words_wrong": rates.words, "phonemes_wrong": rates.phonemes, "deviation": deviation}
    figures = {name: round(100 * figure, 1) for name, figure in figures.items()}
    return {"words": words, "model": model, "number": len(entries)} | figures | paired


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, required=True, help="checkpoint20.npz of g2p_en 2.1.0")
    parser.add_argument("--older", type=Path, required=True, help="cmudict-0.7b, from pronouncing 0.1.5")
    parser.add_argument("--parts", nargs="+", default=["dev", "test"], choices=["dev", "test"])
    arguments = parser.parse_args()
    for file in (arguments.weights, arguments.older):
        if not file.is_file():
            parser.error(f"{file} is missing: pip download --no-deps g2p_en==2.1.0 pronouncing==0.1.5, and unpack both.")
    lexicon = load_cmudict()
    older, network = headwords(arguments.older), Recurrent(arguments.weights)
    ours, card = checkpoints.load(ROOT / "checkpoints/pronunciation.safetensors")
    new = {
        part: [entry for entry in getattr(lexicon, part) if entry.spelling not in older] for part in ("train", "dev", "test")
    }
    taught = [entry for entry in lexicon.dev if entry.spelling in older][::10]
    both = [entry for part in arguments.parts for entry in new[part]]
    everything = [entry for entries in new.values() for entry in entries]
    spellings = words_of(both)
    name = f"new since 0.7b, in {' and '.join(arguments.parts)}"
    us, them = f"ours, {card.parameters:,} parameters", f"g2p_en, {network.parameters():,} parameters"
    beam = transcribe(ours, spellings, strategy="beam", num_beams=4)
    rows = []
    for title, entries in ((name, both), ("older, in dev", taught)):
        mine, theirs = transcribe(ours, words_of(entries)), [network.transcribe(word) for word in words_of(entries)]
        rows.append(row(title, f"{us}, greedy", mine, entries, theirs))
        rows.append(row(title, f"{them}, greedy", theirs, entries, mine))
    rows.insert(1, row(name, f"{us}, beam of 4", beam, both))
    said = [network.transcribe(word) for word in words_of(everything)]
    rows.append(row("new since 0.7b, in any part", f"{them}, greedy", said, everything))
    RESULTS.unlink(missing_ok=True)
    records.append(RESULTS, [one | {"weights": card.sha256[:12]} for one in rows])
    for one in rows:
        print(one)


if __name__ == "__main__":
    main()
