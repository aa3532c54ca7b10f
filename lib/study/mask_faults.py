"""One attention in plain torch that makes its own masks, and thirteen ways to get a mask wrong.

Each fault of `FAULTS` has been seen in public code or is one keystroke away. All keep every shape. The attention is as small as
it can be while each of them fits in: heads are joined with the batch, B·H, as `torch.nn.MultiheadAttention` does, and a cached
step can follow. Without a fault it is right: a row with nothing to attend to gives 0.

Shapes: B sequences, H heads, L queries, S keys, d_model the width of a token, d that of a head.
"""

import math

import torch
from torch import Tensor, nn

NONE = "none"
NO_MASK = "no mask at all"  # padding and causality forgotten both: in no table, since each of the two stands there
INVERTED = "True means ignore"
NO_PADDING = "padding forgotten"
NO_CAUSAL = "causal mask forgotten"
ONE_TOO_FAR = "sees one step ahead"
NOT_IN_EVAL = "causal in training only"
FAST_PATH = "causal ignored on a fast path"
WRONG_AXIS = "padding hides queries, not keys"
WRONG_HEADS = "masks and heads out of step"
ADDED = "boolean added as a number"
AFTER = "mask after the softmax"
NAN_ROW = "NaN in an empty row"
MEAN_ROW = "−1e9, so an empty row gets a mean"
CACHED_STEP = "cached step sees key 0 alone"

# Fault -> the line of code that makes it.
FAULTS = {
    INVERTED: "scores.masked_fill(mask, -inf)",
    NO_PADDING: "mask = causal(L)",
    NO_CAUSAL: "mask = padding(lengths)",
    ONE_TOO_FAR: "mask = ones(L, L).tril(1)",
    NOT_IN_EVAL: "is_causal = self.training",
    FAST_PATH: "if not torch.is_grad_enabled(): mask = padding",
    WRONG_AXIS: "mask = padding[:, :, None]",
    WRONG_HEADS: "mask.repeat(num_heads, 1, 1)",
    ADDED: "scores + mask",
    AFTER: "scores.softmax(-1) * mask",
    NAN_ROW: "scores.masked_fill(~mask, -inf).softmax(-1)",
    MEAN_ROW: "scores.masked_fill(~mask, -1e9).softmax(-1)",
    CACHED_STEP: "mask = ones(L, S).tril()",
}


class MaskedAttention(nn.Module):
    """Multi-head attention that is told lengths and causality, and makes the mask itself.

    Args:
        d_model: width of a token.
        num_heads: H; divides d_model.
        fault: one of `FAULTS`, or `NONE`.

    Raises:
        ValueError: an unknown fault.
    """

    def __init__(self, d_model: int, num_heads: int, fault: str = NONE):
        super().__init__()
        if fault not in (NONE, NO_MASK, *FAULTS):
            raise ValueError(f"fault must be {NONE!r} or one of {', '.join(FAULTS)}, got {fault!r}.")
        self.num_heads, self.fault = num_heads, fault
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        causal: bool = False,
        cache: dict | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Let x attend to the context, or to itself.

        Args:
            x: (B, L, d_model).
            context: (B, S, d_model); x when not given.
            lengths: (B,) real keys of each sequence; all of them when not given.
            causal: whether no query sees a later key.
            cache: a dict that keeps keys and values of earlier calls; x goes on where they end.

        Returns:
            output (B, L, d_model) and weights (B, H, L, S).
        """
        context = x if context is None else context
        q, k, v = self._split(self.q_proj(x)), self._split(self.k_proj(context)), self._split(self.v_proj(context))
        if cache is not None:
            k, v = (torch.cat([cache[name], new], dim=1) if cache else new for name, new in (("k", k), ("v", v)))
            cache |= {"k": k, "v": v}
        allowed = self._allowed(x.size(0), q.size(1), k.size(1), lengths, causal)  # (B, L, S)
        allowed = self._to_heads(allowed)  # (B·H, L, S)
        weights = self._weights(q @ k.mT / math.sqrt(q.size(-1)), allowed)
        joined = (weights @ v).unflatten(0, (-1, self.num_heads)).transpose(1, 2).flatten(2)  # (B·H, L, d) -> (B, L, H·d)
        return self.out_proj(joined), weights.unflatten(0, (-1, self.num_heads))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2).flatten(0, 1)  # (B, L, H·d) -> (B·H, L, d)

    def _allowed(self, B: int, L: int, S: int, lengths: Tensor | None, causal: bool) -> Tensor:
        """(B, L, S), True = may attend. The last query stands at the last key."""
        causal = causal and not (
            self.fault in (NO_CAUSAL, NO_MASK)
            or (self.fault == NOT_IN_EVAL and not self.training)
            or (self.fault == FAST_PATH and not torch.is_grad_enabled())
        )
        allowed = torch.ones(B, L, S, dtype=torch.bool)
        if causal:
            past = 0 if self.fault == CACHED_STEP else S - L
            allowed = allowed.tril(past + (self.fault == ONE_TOO_FAR))
        if lengths is not None and self.fault not in (NO_PADDING, NO_MASK):
            real = torch.arange(S) < lengths[:, None]  # (B, S)
            of_queries = self.fault == WRONG_AXIS and L == S
            allowed = allowed & (real[:, :, None] if of_queries else real[:, None, :])
        return ~allowed if self.fault == INVERTED else allowed

    def _to_heads(self, allowed: Tensor) -> Tensor:
        """(B, L, S) -> (B·H, L, S): the heads of one sequence are neighbors."""
        if self.fault == WRONG_HEADS:
            return allowed.repeat(self.num_heads, 1, 1)
        return allowed.repeat_interleave(self.num_heads, dim=0)

    def _weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        if self.fault == ADDED:
            return (scores + allowed.to(scores.dtype)).softmax(dim=-1)
        if self.fault == AFTER:
            return scores.softmax(dim=-1) * allowed
        if self.fault == NAN_ROW:
            return scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)
        if self.fault == MEAN_ROW:
            return scores.masked_fill(~allowed, -1e9).softmax(dim=-1)
        empty = ~allowed.any(dim=-1, keepdim=True)  # (B·H, L, 1)
        scores = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0.0)
        return scores.softmax(dim=-1).masked_fill(empty, 0.0)


class MiniTransformer(nn.Module):
    """An encoder and a decoder around `MaskedAttention`, as small as can be: pre-norm, sinusoidal positions, no dropout.

    Args:
        vocab_size: number of different tokens, V.
        positions: (n, d_model) table that is added to the tokens' vectors, n at least the longest sequence.
        num_heads, fault: of every attention.
        num_layers: of encoder and decoder each.
    """

    def __init__(self, vocab_size: int, positions: Tensor, num_heads: int = 4, num_layers: int = 1, fault: str = NONE):
        super().__init__()
        self.positions, d_model = positions, positions.size(1)
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.encoder = nn.ModuleList(_Layer(d_model, num_heads, fault, 1) for _ in range(num_layers))
        self.decoder = nn.ModuleList(_Layer(d_model, num_heads, fault, 2) for _ in range(num_layers))
        self.norm, self.output = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """source (B, S) with (B,) real tokens, target (B, L) -> logits (B, L, V) of each next target token."""
        return self.decode(target, self.encode(source, lengths), lengths)

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        """source (B, S) -> memory (B, S, d_model)."""
        x = self._embed(source, 0)
        for layer in self.encoder:
            x = layer(x, lengths=lengths)
        return x

    def decode(self, target: Tensor, memory: Tensor, lengths: Tensor, caches: list[dict] | None = None) -> Tensor:
        """target (B, L), which goes on where the caches end -> logits (B, L, V)."""
        x = self._embed(target, caches[0]["k"].size(1) if caches and caches[0] else 0)
        for i, layer in enumerate(self.decoder):
            x = layer(x, memory, memory_lengths=lengths, causal=True, cache=None if caches is None else caches[i])
        return self.output(self.norm(x))

    def _embed(self, tokens: Tensor, offset: int) -> Tensor:
        return self.embedding(tokens) + self.positions[offset : offset + tokens.size(1)]


class _Layer(nn.Module):
    """Self-attention, attention to a memory where there is one, and two linear maps; each beside a residual connection."""

    def __init__(self, d_model: int, num_heads: int, fault: str, attentions: int):
        super().__init__()
        self.attentions = nn.ModuleList(MaskedAttention(d_model, num_heads, fault) for _ in range(attentions))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(attentions + 1))
        self.maps = nn.Sequential(nn.Linear(d_model, 2 * d_model), nn.ReLU(), nn.Linear(2 * d_model, d_model))

    def forward(self, x, memory=None, *, lengths=None, memory_lengths=None, causal=False, cache=None) -> Tensor:
        x = x + self.attentions[0](self.norms[0](x), lengths=lengths, causal=causal, cache=cache)[0]
        if memory is not None:
            x = x + self.attentions[1](self.norms[1](x), memory, lengths=memory_lengths)[0]
        return x + self.maps(self.norms[-1](x))
