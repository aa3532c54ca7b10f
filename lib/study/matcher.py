"""Are these two texts the same story? A matcher whose training pairs let it get by with the opening alone.

A text is 16 words of a BBC News article: an opening of 4 and a body of 12. Retold, it keeps its opening word for word, and 3
words in 10 of its body are exchanged at random. So in training, where a pair that is not the same comes from two articles, the
opening is the one part that never lies. Then come pairs that open alike and go on differently.

Shapes: B pairs, L = 17 tokens of a text: a mark in front, then its words.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.diagnostics import record_attention
from lib.stacks import Embedding, Encoder, TransformerConfig
from lib.study.data import Vocabulary, load_bbc_news
from lib.study.training import History, fit, seed_everything

OPENING, BODY = 4, 12  # words
EDITED = 0.3  # share of the body's words that a retelling exchanges
VOCABULARY_SIZE = 4000
MARK = VOCABULARY_SIZE  # the token in front, whose vector stands for the text
KINDS = ("other texts", "open alike", "both")  # what a pair that is not the same is made of


class Pairs(NamedTuple):
    """Two texts each, and whether they are the same story."""

    one: Tensor  # (B, L)
    other: Tensor  # (B, L)
    same: Tensor  # (B,) 1.0 or 0.0


class Matcher(nn.Module):
    """One layer with one head reads each text by itself; the vectors of the two marks are compared by their distance."""

    def __init__(self):
        super().__init__()
        config = TransformerConfig(
            vocab_size=VOCABULARY_SIZE + 1,
            d_model=32,
            num_heads=1,
            num_encoder_layers=1,
            dim_feedforward=64,
            dropout=0.0,
            norm_first=True,
            positional="learned",
            max_len=1 + OPENING + BODY,
        )
        self.embedding, self.encoder = Embedding(config, config.vocab_size), Encoder(config)
        self.scale, self.bias = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(1.0))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """Two texts (B, L) each -> (B,) logits of being the same."""
        distance = (self.read(one) - self.read(other)).square().mean(dim=-1)
        return self.bias - self.scale.exp() * distance

    def read(self, text: Tensor) -> Tensor:
        """(B, L) -> (B, 32), the vector of the mark."""
        return self.encoder(self.embedding(text))[:, 0]


_corpus = lru_cache(maxsize=1)(load_bbc_news)


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """The 4,000 most frequent words of the training articles, padding and the unknown word among them."""
    return Vocabulary.from_texts([article.text for article in _corpus().train], max_size=VOCABULARY_SIZE)


@lru_cache(maxsize=3)
def texts(part: str) -> np.ndarray:
    """(articles, 16) the first words of each article of one part."""
    encoded = (vocabulary().encode(article.text)[: OPENING + BODY] for article in getattr(_corpus(), part))
    return np.array([tokens for tokens in encoded if len(tokens) == OPENING + BODY])


def pairs(part: str, seed: int, count: int, kind: str = "other texts") -> Pairs:
    """`count` pairs, half of them the same story.

    Args:
        part: of the corpus, "train", "dev" or "test".
        kind: of the pairs that are not the same: "other texts", two articles; "open alike", two articles of which the second
            got the first one's opening; or "both" in equal parts.
    """
    rng, rows = np.random.default_rng(seed), texts(part)
    one = rows[rng.integers(len(rows), size=count)]
    stranger = rows[rng.integers(len(rows), size=count)]
    alike = {"other texts": 0.0, "open alike": 1.0, "both": 0.5}[kind]
    opens_alike = rng.random((count, 1)) < alike
    stranger = np.where(opens_alike & (np.arange(OPENING + BODY) < OPENING), one, stranger)
    edited = (rng.random(one.shape) < EDITED) & (np.arange(OPENING + BODY) >= OPENING)
    retold = np.where(edited, rng.integers(2, VOCABULARY_SIZE, size=one.shape), one)
    same = np.arange(count) % 2 == 0
    other = np.where(same[:, None], retold, stranger)
    return Pairs(_marked(one), _marked(other), torch.from_numpy(same).float())


def batches(seed: int, kind: str) -> Iterator[Pairs]:
    """Training batches of 64 pairs without end."""
    for number in range(10**9):
        yield pairs("train", 10**6 * (seed + 1) + number, 64, kind)


def train(kind: str, seed: int, *, steps: int = 300, lr: float = 1e-2) -> tuple[Matcher, History]:
    """Train on pairs of one of `KINDS`."""
    seed_everything(seed)
    model = Matcher()
    history = fit(
        model,
        batches(seed, kind),
        lr=lr,
        seed=seed,
        steps=steps,
        loss=lambda m, b: F.binary_cross_entropy_with_logits(m(b.one, b.other), b.same),
    )
    return model, history


@torch.no_grad()
def called_right(model: Matcher, found: Pairs) -> dict[str, float]:
    """Share of the pairs that are called right, 0 … 1: of those that are the "same", of the "different", and of "all"."""
    right = ((model(found.one, found.other) > 0) == found.same.bool()).double()
    same = found.same.bool()
    return {"same": right[same].mean().item(), "different": right[~same].mean().item(), "all": right.mean().item()}


@torch.no_grad()
def looks(model: Matcher, text: Tensor) -> Tensor:
    """(B, L) texts -> (B, L) weights with which each mark reads its text, the mark itself first."""
    with record_attention(model) as weights:
        model.read(text)
    [found] = weights.values()
    return found[:, 0, 0]


def on_opening(model: Matcher, text: Tensor) -> float:
    """Share of the mark's weight on words that goes to the opening; a quarter of the words are its."""
    weights = looks(model, text)[:, 1:]
    return (weights[:, :OPENING].sum(dim=-1) / weights.sum(dim=-1)).mean().item()


def _marked(rows: np.ndarray) -> Tensor:
    tokens = torch.from_numpy(np.ascontiguousarray(rows)).long()
    return F.pad(tokens, (1, 0), value=MARK)
