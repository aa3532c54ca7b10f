"""Tagging tokens: sentences as numbers, the most-frequent-tag baseline, and an encoder that tags.

Shapes: B sentences in the batch, L tokens in the longest of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lib import masks
from lib.study.data import Batch, rectangle
from lib.study.dates import TAGS, Sentence, tokenize
from lib.study.training import to_device
from lib.transformer import EncoderTagger

NO_LABEL = -100  # at padding: what `torch.nn.functional.cross_entropy` passes over
LONGEST_NUMBER = 9  # digits that a shape counts


@dataclass(frozen=True)
class Words:
    """The tokens that a tagger knows, numbered; it knows others by their shape. 0 is padding."""

    names: tuple[str, ...]

    @classmethod
    def from_sentences(cls, given: Iterable[Sentence], min_languages: int = 2) -> "Words":
        """Know the tokens that occur in several languages: numbers, signs, shared words. So every language has unknown ones."""
        seen = defaultdict(set)
        for sentence in given:
            for token in sentence.tokens:
                seen[token.lower()].add(sentence.locale.split("_")[0])
        known = sorted(token for token in seen if len(seen[token]) >= min_languages)
        return cls(("<pad>", "<word>", "<Word>", "<sign>", *(f"<{n} digits>" for n in range(1, LONGEST_NUMBER + 1)), *known))

    @cached_property
    def index(self) -> dict[str, int]:
        """Number of each name."""
        return {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Numbers of tokens, upper and lower case being one; of the shape where a token is unknown."""
        return [self.index.get(token.lower(), self.index[_shape(token)]) for token in tokens]


def batches(
    given: Sequence[Sentence], words: Words, batch_size: int, *, seed: int | None = None, epochs: int = 1
) -> Iterator[Batch]:
    """Sentences as numbers, with a label for each token, its place in TAGS, and NO_LABEL at padding.

    Args:
        given: at least one sentence.
        words: from the training sentences.
        batch_size: B; the last batch of a pass may be smaller.
        seed: each pass has another order, drawn from it; the order given when None.
        epochs: passes.

    Raises (when the first batch is asked for):
        ValueError: no sentences; a batch size below 1.
    """
    if not given or batch_size < 1:
        raise ValueError(f"sentences and batch_size must each be at least 1, got {len(given)} and {batch_size}.")
    rng = np.random.default_rng(seed)
    rows = [(words.encode(sentence.tokens), [TAGS.index(tag) for tag in sentence.tags]) for sentence in given]
    for _ in range(epochs):
        order = np.arange(len(rows)) if seed is None else rng.permutation(len(rows))
        for start in range(0, len(rows), batch_size):
            tokens, labels = zip(*(rows[i] for i in order[start : start + batch_size]), strict=True)
            lengths = torch.tensor([len(row) for row in tokens])
            yield Batch(rectangle(tokens, 0), lengths, rectangle(labels, NO_LABEL))


def most_frequent_tags(given: Iterable[Sentence], words: Words) -> dict[int, str]:
    """The baseline: the tag that each number of `words` has most often, its neighbors unseen. Apply it with `tag_by_word`."""
    counts: dict[int, Counter] = defaultdict(Counter)
    for sentence in given:
        for number, tag_ in zip(words.encode(sentence.tokens), sentence.tags, strict=True):
            counts[number][tag_] += 1
    return {number: max(sorted(count), key=count.get) for number, count in counts.items()}


def tag_by_word(given: Iterable[Sentence], words: Words, tags: dict[int, str]) -> list[list[str]]:
    """The tags that the baseline gives; O for a token that it has never met."""
    return [[tags.get(number, "O") for number in words.encode(sentence.tokens)] for sentence in given]


def tagging_loss(model: EncoderTagger, batch: Batch) -> Tensor:
    """Mean cross entropy over the real tokens, for `lib.study.training.fit`."""
    logits = model(batch.tokens, masks.padding(batch.lengths, batch.tokens.size(1)))  # (B, L, tags)
    return F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=NO_LABEL)


@torch.no_grad()
def tag_by_model(given: Sequence[Sentence], words: Words, model: EncoderTagger, batch_size: int = 256) -> list[list[str]]:
    """The tags that the model finds most likely, in evaluation mode."""
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    found = []
    for batch in batches(given, words, batch_size):
        tokens, lengths, _ = to_device(batch, device)
        best = model(tokens, masks.padding(lengths, tokens.size(1))).argmax(dim=-1).tolist()
        found += [[TAGS[number] for number in row[:length]] for row, length in zip(best, lengths.tolist(), strict=True)]
    model.train(was_training)
    return found


def sentence(text: str) -> Sentence:
    """A reader's own text, to be tagged: all its tags are O, its locale is unknown.

    Raises:
        ValueError: a text without any token.
    """
    tokens = tuple(tokenize(text))
    if not tokens:
        raise ValueError(f"there is nothing to tag in {text!r}: give at least one word, number or sign.")
    return Sentence("", text, tokens, ("O",) * len(tokens))


def _shape(token: str) -> str:
    if token[0].isnumeric():
        return f"<{min(len(token), LONGEST_NUMBER)} digits>"
    if not token[0].isalpha():
        return "<sign>"
    return "<Word>" if token[0].isupper() else "<word>"
