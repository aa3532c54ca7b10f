"""How much attention goes to the first token, in small causal language models: on letters of BBC News, and on a made-up task.

The made-up task shows why a head may want a place to look at when it has nothing to do (after Guo et al. 2024, "Active-Dormant
Attention Heads", section 2). Tokens follow a chain: each names its few likely successors. Behind one of three triggers the rule
changes: the token before the trigger comes again. So attention has work behind a trigger, and none elsewhere.

Shapes: B sequences, L tokens, the start mark at place 0; N layers, H heads.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lib.diagnostics import record_attention
from lib.study.data import Article, load_bbc_news
from lib.study.training import History, fit, seed_everything
from lib.transformer import DecoderLM, TransformerConfig

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789'.,- "
START = len(LETTERS)  # the mark in front
LENGTH, BATCH = 64, 32
LETTER_SIZES = {"d_model": 64, "num_heads": 4, "num_decoder_layers": 2, "dim_feedforward": 128}

TOKENS, TRIGGERS = 32, (0, 1, 2)  # of the made-up task
CHAIN_START, CHAIN_LENGTH = TOKENS, 48
CHAIN_SIZES = {"d_model": 48, "num_heads": 1, "num_decoder_layers": 1, "dim_feedforward": 96}


def build(vocab_size: int, seed: int, **sizes) -> DecoderLM:
    """An untrained pre-norm model without dropout."""
    seed_everything(seed)
    config = TransformerConfig(
        vocab_size=vocab_size, dropout=0.0, norm_first=True, positional="learned", max_len=LENGTH, activation="gelu", **sizes
    )
    return DecoderLM(config)


def next_token_loss(model: DecoderLM, tokens: Tensor) -> Tensor:
    """Mean cross entropy of each token but the first, given those before it."""
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


@lru_cache(maxsize=2)
def letters(part: str) -> Tensor:
    """(n,) all letters of one part of BBC News, article behind article, without signs that the model does not know."""
    number = {letter: i for i, letter in enumerate(LETTERS)}

    def cleaned(article: Article) -> list[int]:
        return [number[sign] for sign in " ".join(article.text.lower().split()) + " " if sign in number]

    return torch.tensor([token for article in getattr(load_bbc_news(), part) for token in cleaned(article)])


def windows(part: str, seed: int, count: int) -> Tensor:
    """(count, LENGTH) the start mark, then letters from a random place."""
    text, random = letters(part), torch.Generator().manual_seed(seed)
    begin = torch.randint(len(text) - LENGTH, (count, 1), generator=random)
    return F.pad(text[begin + torch.arange(LENGTH - 1)], (1, 0), value=START)


def train_on_letters(seed: int, *, steps: int, lr: float = 4e-3) -> tuple[DecoderLM, History]:
    """Train on letters of BBC News."""
    model = build(len(LETTERS) + 1, seed, **LETTER_SIZES)
    stream = (Rows(windows("train", 10**6 * (seed + 1) + i, BATCH)) for i in range(steps))
    return model, fit(model, stream, lr=lr, seed=seed, loss=lambda m, batch: next_token_loss(m, batch[0]))


class Rows(tuple):
    """A batch of one tensor, as `fit` moves it between devices."""

    def __new__(cls, tokens: Tensor):
        """(B, L)."""
        return super().__new__(cls, (tokens,))


@torch.no_grad()
def mass_on_first(model: DecoderLM, tokens: Tensor) -> Tensor:
    """(N, H) mean weight that queries of the second half give to the first token. (B, L) tokens."""
    with record_attention(model.eval()) as weights:
        model(tokens)
    return torch.stack([w[:, :, w.size(2) // 2 :, 0].mean(dim=(0, 2)) for w in weights.values()])


def by_chance(length: int) -> float:
    """The same if each query of the second half looked at all tokens up to itself alike."""
    return float(np.mean([1 / (i + 1) for i in range(length // 2, length)]))


@lru_cache(maxsize=1)
def chain() -> Tensor:
    """(TOKENS, TOKENS) probability of each next token: each has three likely successors."""
    random = torch.Generator().manual_seed(0)
    logits = torch.zeros(TOKENS, TOKENS)
    for row in logits:
        row[torch.randperm(TOKENS, generator=random)[:3]] = 5.0
    return logits.softmax(dim=-1)


def chains(seed: int, count: int) -> Tensor:
    """(count, CHAIN_LENGTH) sequences of the made-up task behind the start mark."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.full((count, CHAIN_LENGTH), CHAIN_START)
    tokens[:, 1] = torch.randint(TOKENS, (count,), generator=random)
    for t in range(2, CHAIN_LENGTH):
        last = tokens[:, t - 1]
        drawn = torch.multinomial(chain()[last], 1, generator=random)[:, 0]
        again = (last <= max(TRIGGERS)) & (tokens[:, t - 2] != CHAIN_START)
        tokens[:, t] = torch.where(again, tokens[:, t - 2], drawn)
    return tokens


def train_on_chains(seed: int, *, steps: int, lr: float = 5e-3) -> tuple[DecoderLM, History]:
    """Train one layer with one head on the made-up task."""
    model = build(TOKENS + 1, seed, **CHAIN_SIZES)
    stream: Iterator[Rows] = (Rows(chains(10**6 * (seed + 1) + i, BATCH)) for i in range(steps))
    return model, fit(model, stream, lr=lr, seed=seed, loss=lambda m, batch: next_token_loss(m, batch[0]))


@torch.no_grad()
def behind_triggers(model: DecoderLM, tokens: Tensor) -> dict[str, float]:
    """Mean weights of the one head: on the start mark from triggers and from other tokens, on the token before from both."""
    with record_attention(model.eval()) as weights:
        model(tokens)
    [found] = weights.values()
    found, place = found[:, 0], torch.arange(2, tokens.size(1))  # (B, L, L)
    trigger = tokens[:, 2:] <= max(TRIGGERS)
    first, before = found[:, 2:, 0], found[:, place, place - 1]
    return {
        "first, behind others": first[~trigger].mean().item(),
        "first, behind triggers": first[trigger].mean().item(),
        "before, behind others": before[~trigger].mean().item(),
        "before, behind triggers": before[trigger].mean().item(),
    }
