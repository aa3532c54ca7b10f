"""Our model of pronunciation beside the network of the package g2p_en, on words that neither has seen.

g2p_en was trained on NLTK's copy of CMUdict, and so on the words that we hold out. What is new to it are headwords that came
into the dictionary later. They are found by comparison with an older edition, 0.7b of 2014, which comes with the package
pronouncing 0.1.5. Of these, the ones in our dev and test parts are new to our model too; all of them together are asked of
g2p_en alone. A sample of older words from the dev part, which g2p_en was trained on and our model was not, shows what that is
worth. Words are scored without stress, against the closest pronunciation. No choice was made by these scores.

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


def row(words: str, model: str, predictions: list, entries: list[Entry]) -> dict:
    """One line of the table."""
    rates = error_rates(predictions, [entry.sounds for entry in entries])
    deviation = math.sqrt(rates.words * (1 - rates.words) / len(entries))
    figures = {"words_wrong": rates.words, "phonemes_wrong": rates.phonemes, "deviation": deviation}
    return {"words": words, "model": model, "number": len(entries)} | {k: round(100 * v, 1) for k, v in figures.items()}


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
    theirs = f"g2p_en, {network.parameters():,} parameters"
    beam = transcribe(ours, spellings, strategy="beam", num_beams=4)
    rows = [
        row(name, f"ours, {card.parameters:,} parameters, greedy", transcribe(ours, spellings), both),
        row(name, f"ours, {card.parameters:,} parameters, beam of 4", beam, both),
        row(name, f"{theirs}, greedy", [network.transcribe(spelling) for spelling in spellings], both),
        row("older, in dev", f"ours, {card.parameters:,} parameters, greedy", transcribe(ours, words_of(taught)), taught),
        row("older, in dev", f"{theirs}, greedy", [network.transcribe(word) for word in words_of(taught)], taught),
        row(
            "new since 0.7b, in any part",
            f"{theirs}, greedy",
            [network.transcribe(word) for word in words_of(everything)],
            everything,
        ),
    ]
    RESULTS.unlink(missing_ok=True)
    records.append(RESULTS, [one | {"weights": card.sha256[:12]} for one in rows])
    for one in rows:
        print(one)


if __name__ == "__main__":
    main()
