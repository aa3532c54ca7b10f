"""Tasks with a known answer at a known place: a passage planted in a longer text, and a look-up among tokens.

Shapes: B examples in the batch, L tokens in each.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lib.study.data import TOPICS, Article, Batch, Example, Vocabulary, collate

BACKGROUND = "business"
PASSAGE_TOPICS = tuple(topic for topic in TOPICS if topic != BACKGROUND)
PASSAGE = 40  # words
SHORTEST = 50  # words in the shortest document

NAMES, VALUES, MEMBERS = 32, 8, 12  # of the look-up


@dataclass(frozen=True)
class Passages:
    """Long texts on business with one passage of 40 words on something else; the label is the passage's topic.

    Nothing but the passage decides, and it can be put anywhere in a text of any length, both cut from real articles.
    """

    sources: list[Example]  # articles that passages are cut from, with their place in PASSAGE_TOPICS
    background: list[Sequence[int]]

    @classmethod
    def from_articles(cls, articles: Sequence[Article], vocabulary: Vocabulary) -> "Passages":
        """Sort the articles of one part of the corpus into sources of passages and background."""
        numbered = [(vocabulary.encode(article.text), article.topic) for article in articles]
        return cls(
            [Example(tokens, PASSAGE_TOPICS.index(topic)) for tokens, topic in numbered if topic != BACKGROUND],
            [tokens for tokens, topic in numbered if topic == BACKGROUND],
        )

    def document(self, rng: np.random.Generator, source: Example, length: int, position: float) -> Example:
        """A document of `length` words around a random passage of `source`; position 0 is the start, 1 the end.

        Raises:
            ValueError: a length without room for the passage; a position outside 0 … 1.
        """
        room = length - PASSAGE
        if room < 0 or not 0 <= position <= 1:
            raise ValueError(f"length must be at least {PASSAGE} and position 0 … 1, got {length} and {position}.")
        passage = cut(rng, source.tokens, PASSAGE)
        text: list[int] = []
        while len(text) < room:
            text.extend(self.background[rng.integers(len(self.background))])
        text = list(cut(rng, text, room))
        before = round(position * room)
        return Example([*text[:before], *passage, *text[before:]], source.label)

    def batches(self, seed: int, longest: int, batch_size: int = 32) -> Iterator[Batch]:
        """Training batches without end: passages anywhere, one length a batch, from 50 to `longest`, as often short as long.

        "As often" is meant by factors: 50 to 100 words is as frequent as 100 to 200.
        """
        rng = np.random.default_rng(seed)
        while True:
            length = round(math.exp(rng.uniform(math.log(SHORTEST), math.log(longest))))
            chosen = rng.integers(len(self.sources), size=batch_size)
            yield collate([self.document(rng, self.sources[i], length, rng.random()) for i in chosen])

    def examples(self, length: int, position: float, seed: int = 0) -> list[Example]:
        """One document of each source. The same seed and length give the same texts, whatever the position."""
        rng = np.random.default_rng([seed, length])
        return [self.document(rng, source, length, position) for source in self.sources]


def cut(rng: np.random.Generator, tokens: Sequence[int], length: int) -> Sequence[int]:
    """A stretch of `length` tokens at a random place.

    Raises:
        ValueError: fewer tokens than that.
    """
    if len(tokens) < length:
        raise ValueError(f"cannot cut {length} tokens out of {len(tokens)}.")
    start = rng.integers(len(tokens) - length + 1)
    return tokens[start : start + length]


def lookup(seed: int, batch_size: int = 64) -> Iterator[Batch]:
    """Batches without end of a look-up: each token has a name and a value, and wants the value of another by its name.

    The wants form one ring through all 12 tokens in random order, so each token wants one and is wanted by another one. A
    token is (name, wanted name, value): 12 of 32 names, all different, and one of 8 values each, so a guess is right once in 8.

    A match that is the same both ways cannot tell "I want you" from "you want me", which leaves two candidates. A coin thrown
    between them is right in 1/2 + 1/2 · 1/8 = 0.5625 of the cases.

    Yields:
        Batch of tokens (B, 12, 3), lengths (B,) all 12, labels (B, 12): the value that each token wants.
    """
    rng = np.random.default_rng(seed)
    rows = np.arange(batch_size)[:, None]
    while True:
        names = rng.permuted(np.tile(np.arange(NAMES), (batch_size, 1)), axis=1)[:, :MEMBERS]
        values = rng.integers(VALUES, size=names.shape)
        ring = rng.permuted(np.tile(np.arange(MEMBERS), (batch_size, 1)), axis=1)  # each place wants the one after it
        target = np.empty_like(ring)
        target[rows, ring] = np.roll(ring, -1, axis=1)
        tokens = np.stack([names, names[rows, target], values], axis=-1)
        yield Batch(torch.from_numpy(tokens), torch.full((batch_size,), MEMBERS), torch.from_numpy(values[rows, target]))
