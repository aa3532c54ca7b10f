"""Which letter does a sound come from? An alignment of spellings and sounds, learned by counting, and a look into a model.

The aligner knows nothing of any model. It reads words from left to right and lets each letter make no sound, one or two; what
a letter likes to make is counted in the alignments of the round before, and the first round counts what stands at about the
same height of the word. So in "knight" N comes from the n, AY from the i, T from the t, and k, g and h are silent.

Shapes: B words, S letters and their end, L sounds and their end, H heads.

Source: Black, Lenzo and Pagel 1998, "Issues in Building General Letter to Sound Rules", for letters that make few sounds or
none; Viterbi training as in Brown et al. 1993, "The Mathematics of Statistical Machine Translation".
"""

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from lib.multihead import recorded_weights
from lib.study.pronunciation import LETTERS, PHONEMES, Pair, collate
from lib.study.seq2seq import source_mask
from lib.transformer import Transformer

MOST = 2  # sounds of one letter, as K S of "x"
VOWEL_LETTERS = "aeiouy"
VOWELS = frozenset(PHONEMES.names[PHONEMES.index["AA"] : PHONEMES.index["B"]])
UNSEEN = 0.01  # counted for what was never seen
Word = tuple[str, Sequence[str]]  # spelling and sounds


class Aligner:
    """Learns what letters sound like, and where in a spelling each sound comes from.

    Args:
        words: spellings with their sounds, to learn from; a few thousand are enough.
        rounds: of counting.

    Raises:
        ValueError: no words.
    """

    def __init__(self, words: Sequence[Word], rounds: int = 4):
        if not words:
            raise ValueError("an aligner learns from words, got none.")
        self.counts = _at_one_height(words)
        for _ in range(rounds):
            counts: Counter = Counter()
            for spelling, sounds in words:
                made = self.split(spelling, sounds)
                counts.update(zip(spelling, made, strict=True) if made is not None else ())
            self.counts = counts

    @property
    def counts(self) -> Counter:
        """How often a letter was seen to make these sounds: (letter, tuple of sounds) -> number."""
        return self._counts

    @counts.setter
    def counts(self, counts: Counter) -> None:
        """Take new counts, and count anew how often each letter occurs."""
        self._counts, self._of_letter = counts, Counter()
        for (letter, _), number in counts.items():
            self._of_letter[letter] += number

    def cost(self, letter: str, sounds: tuple[str, ...]) -> float:
        """Minus the log of the share of the letter's occurrences in which it made these sounds."""
        seen = self._counts.get((letter, sounds), 0)
        if not seen and len(sounds) > 1:
            return -math.log(UNSEEN**2 / (self._of_letter[letter] + 1))  # nobody's habit: rather one sound by another letter
        return -math.log((seen + UNSEEN) / (self._of_letter[letter] + 1))

    def split(self, spelling: str, sounds: Sequence[str]) -> list[tuple[str, ...]] | None:
        """The sounds of each letter, in order, at the lowest sum of costs; None if there are more than two for each letter."""
        S, L = len(spelling), len(sounds)
        best = [[math.inf] * (L + 1) for _ in range(S + 1)]  # of the first s letters and the first i sounds
        took = [[0] * (L + 1) for _ in range(S + 1)]
        best[0][0] = 0.0
        for s, letter in enumerate(spelling, start=1):
            for i in range(L + 1):
                for n in range(min(MOST, i) + 1):
                    if best[s - 1][i - n] < math.inf:
                        cost = best[s - 1][i - n] + self.cost(letter, tuple(sounds[i - n : i]))
                        if cost < best[s][i]:
                            best[s][i], took[s][i] = cost, n
        if best[S][L] == math.inf:
            return None
        made, i = [], L
        for s in range(S, 0, -1):
            made.append(tuple(sounds[i - took[s][i] : i]))
            i -= took[s][i]
        return made[::-1]

    def letters(self, spelling: str, sounds: Sequence[str]) -> list[int] | None:
        """For each sound the number of its letter, from 0; None as in `split`."""
        made = self.split(spelling, sounds)
        return None if made is None else [s for s, own in enumerate(made) for _ in own]

    def usual_sounds(self, spelling: str) -> tuple[str, ...]:
        """What each letter makes most often, one after another: reading without looking left or right."""
        made = [max(((n, own) for (x, own), n in self._counts.items() if x == letter), default=(0, ())) for letter in spelling]
        return tuple(sound for _, own in made for sound in own)


def diagonal(spelling: str, sounds: Sequence[str]) -> list[int]:
    """For each sound the letter at the same height of the word: the guess of who knows nothing of letters."""
    return [int((i + 0.5) / len(sounds) * len(spelling)) for i in range(len(sounds))]


def vowel_or_consonant(spelling: str, sounds: Sequence[str]) -> list[int]:
    """For each sound the letter of its own kind nearest to the same height: the guess of who tells vowels from consonants.

    Of two that are as near, the left one; where no letter is of the kind, the nearest of all.
    """
    kinds = [letter in VOWEL_LETTERS for letter in spelling]
    guesses = []
    for i, sound in enumerate(sounds):
        height = (i + 0.5) / len(sounds) * len(spelling) - 0.5
        alike = [s for s, is_vowel in enumerate(kinds) if is_vowel == (sound in VOWELS)]
        guesses.append(min(alike or range(len(spelling)), key=lambda s, height=height: abs(s - height)))
    return guesses


def cross_weights(model: Transformer, words: Sequence[Word]) -> Tensor:
    """The weights with which each sound is written, when the right sounds before it are given: (B, layers, H, L, S).

    Row i is the query that writes sound i. The last row writes the end, the last column of a word is its end.
    """
    batch = collate([Pair(LETTERS.encode(spelling), PHONEMES.encode(sounds)) for spelling, sounds in words])
    model.eval()
    with torch.no_grad(), recorded_weights(model) as weights:
        model(batch.source, batch.inputs, source_mask(batch.source, batch.source_lengths))
    return torch.stack([weights[f"decoder.layers.{i}.cross_attn"] for i in range(model.config.num_decoder_layers)], dim=1)


def most_looked_at(weights: Tensor, words: Sequence[Word]) -> list[list[int]]:
    """For each sound of each word the column with the most weight. weights (B, L, S)."""
    found = weights.argmax(dim=-1)
    return [row[: len(sounds)].tolist() for row, (_, sounds) in zip(found, words, strict=True)]


def hits(
    guessed: Sequence[Sequence[int]], true: Sequence[Sequence[int]], among: Sequence[Sequence[bool]] | None = None
) -> float:
    """Share of the sounds whose letter was guessed; of those `among` which it is asked, where given."""
    right = total = 0
    for b, (guess, truth) in enumerate(zip(guessed, true, strict=True)):
        for i, (one, other) in enumerate(zip(guess, truth, strict=True)):
            if among is None or among[b][i]:
                right, total = right + (one == other), total + 1
    return right / total if total else math.nan


def _at_one_height(words: Sequence[Word]) -> Counter:
    """First counts: a letter with each sound that stands within one letter of the same height of the word, and half silent."""
    counts: Counter = Counter()
    for spelling, sounds in words:
        S, L = len(spelling), len(sounds)
        for s, letter in enumerate(spelling):
            counts[letter, ()] += 0.5
            for i, sound in enumerate(sounds):
                if abs((s + 0.5) / S - (i + 0.5) / L) < 1 / S:
                    counts[letter, (sound,)] += 1
    return counts
