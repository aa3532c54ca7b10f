"""A hand-written attention in plain torch, as a reader might bring it, and eight bugs, each in one of its small methods.

`PlainAttention` is sound. Each class of `BUGS` overrides one method, and keeps every shape. It uses nothing of this library.

Shapes: B sequences, H heads, L queries, S keys, d the width of a head.
"""

import inspect
import math
import re
import textwrap

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainAttention(nn.Module):
    """Causal self-attention with H heads.

    `keep` (B, S) is True for real tokens; `cache` holds earlier keys and values.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.1):
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, keep=None, cache=None):
        """x (B, L, d_model) -> (B, L, d_model)."""
        q, k, v = self.project(x)
        if cache is not None:
            if cache:
                k = torch.cat([cache["k"], k], dim=2)
                v = torch.cat([cache["v"], v], dim=2)
            cache.update(k=k, v=v)
        weights = self.weigh(self.score(q, k), self.allow(q.size(2), k.size(2), keep))
        return self.out_proj(self.join(self.drop(weights) @ v))

    def project(self, x):
        """Queries, keys and values, each split into heads."""
        q, k = self.split(self.q_proj(x)), self.split(self.k_proj(x))
        return q, k, self.split(self.v_proj(x))

    def split(self, x):
        """Reshapes (B, L, d_model) -> (B, H, L, d)."""
        B, L, _ = x.shape
        return x.view(B, L, self.num_heads, -1).transpose(1, 2)  # (B, H, L, d)

    def score(self, q, k):
        """Scaled dot products, (B, H, L, S)."""
        return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B, H, L, S)

    def allow(self, L, S, keep):
        """Which keys each query may attend to: True where it may."""
        allowed = torch.ones(L, S, dtype=torch.bool).tril(S - L)  # True = may attend
        return allowed if keep is None else allowed & keep[:, None, None, :]

    def weigh(self, scores, allowed):
        """Softmax over the allowed keys; rows of zeros where there are none."""
        empty = ~allowed.any(dim=-1, keepdim=True)  # rows with nothing to attend to
        scores = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0.0)
        return scores.softmax(dim=-1).masked_fill(empty, 0.0)

    def drop(self, weights):
        """Dropout on the weights, in training alone."""
        return F.dropout(weights, self.dropout, self.training)

    def join(self, heads):
        """Reshapes (B, H, L, d) -> (B, L, d_model)."""
        B, _, L, _ = heads.shape
        return heads.transpose(1, 2).reshape(B, L, -1)  # (B, L, H·d)


class SeesAhead(PlainAttention):
    """The triangle is one step too wide."""

    def allow(self, L, S, keep):
        """One key too many for each query."""
        allowed = torch.ones(L, S, dtype=torch.bool).tril(S - L + 1)
        return allowed if keep is None else allowed & keep[:, None, None, :]


class CausalInTraining(PlainAttention):
    """The triangle hangs on the mode."""

    def allow(self, L, S, keep):
        """All keys, once out of training."""
        allowed = torch.ones(L, S, dtype=torch.bool)
        if self.training:
            allowed = allowed.tril(S - L)
        return allowed if keep is None else allowed & keep[:, None, None, :]


class StepFromTheStart(PlainAttention):
    """The triangle is aligned to the first key, so a step with a cache sees that key alone."""

    def allow(self, L, S, keep):
        """The first L keys, wherever the queries stand."""
        allowed = torch.ones(L, S, dtype=torch.bool).tril()
        return allowed if keep is None else allowed & keep[:, None, None, :]


class ReadsPadding(PlainAttention):
    """`keep` is taken, and never used."""

    def allow(self, L, S, keep):
        """The triangle alone."""
        return torch.ones(L, S, dtype=torch.bool).tril(S - L)


class ScrambledHeads(PlainAttention):
    """Heads are joined without the transpose."""

    def join(self, heads):
        """A reshape alone."""
        B, _, L, _ = heads.shape
        return heads.reshape(B, L, -1)


class ScaledUp(PlainAttention):
    """The scores are multiplied by the square root."""

    def score(self, q, k):
        """Dot products, scaled the wrong way."""
        return q @ k.transpose(-2, -1) * math.sqrt(q.size(-1))


class KeysForQueries(PlainAttention):
    """The keys' map makes the queries too: a slip of copy and paste."""

    def project(self, x):
        """Keys, keys and values."""
        q, k = self.split(self.k_proj(x)), self.split(self.k_proj(x))
        return q, k, self.split(self.v_proj(x))


class DropsAlways(PlainAttention):
    """Dropout does not ask for the mode: it is on by default."""

    def drop(self, weights):
        """Dropout on the weights, always."""
        return F.dropout(weights, self.dropout)


# In the order in which the chapter tells them.
BUGS: dict[str, type[PlainAttention]] = {
    "sees one step ahead": SeesAhead,
    "causal in training only": CausalInTraining,
    "cached step from the start": StepFromTheStart,
    "padding mask never used": ReadsPadding,
    "heads joined without transpose": ScrambledHeads,
    "scores scaled up": ScaledUp,
    "keys used as queries": KeysForQueries,
    "dropout in eval": DropsAlways,
}
SOUND = "sound"
KINDS: dict[str, type[PlainAttention]] = {SOUND: PlainAttention} | BUGS


def lines(kind: str) -> str:
    """The source of what a bug overrides, as text; of the whole module for `SOUND`. Bare of the methods' docstrings."""
    source = re.sub(r'\n {8}"""[A-Z][^"]*"""', "", textwrap.dedent(inspect.getsource(KINDS[kind])))
    if kind == SOUND:
        return source
    head, body = source.split('"""\n', 1)
    return f"{head.splitlines()[0]}\n{body.strip(chr(10))}"


def call(module: nn.Module, x: Tensor, keep: Tensor | None) -> Tensor:
    """How a diagnosis calls it."""
    return module(x, keep)


def step(module: nn.Module, x: Tensor, state: dict | None) -> tuple[Tensor, dict]:
    """How a diagnosis goes on from the keys and values of earlier tokens."""
    state = {} if state is None else state
    return module(x, cache=state), state
