"""Exact attention by tiles: the numbers of the eager form without ever forming the (L, S) weights.

The scores are visited in tiles of a few hundred queries by a few hundred keys, small enough to stay in the processor's cache.
Each row carries three running things from tile to tile, and they are all it needs (the online softmax):
    peak    the largest score so far
    total   the sum of 2^(score − peak) so far, in units of log₂ e
    output  the sum of 2^(score − peak) · value so far
When a tile raises the peak, what was summed before shrinks by 2^(old − new). The backward pass keeps nothing of the tiles: it
forms each one again from query, key, peak and total, so what is saved grows with L + S and not with L · S.

    causal, 4 × 4 tiles       ■ whole: no mask needed
      ◪ · · ·                 ◪ crossed by the mask
      ■ ◪ · ·                 · dead: never visited
      ■ ■ ◪ ·
      ■ ■ ■ ◪

Sources: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", algorithm 3; Rabe and Staats 2021,
"Self-attention does not need O(n²) memory"; Dao et al. 2022, "FlashAttention", algorithms 1 and 4.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lib import masks
from lib.inputs import check_inputs, without_autocast

_LOG2_E = math.log2(math.e)  # 2^x is a good deal faster than e^x on CPUs, and 2^(x · log₂ e) = e^x

# (queries, keys) of a tile, and how many scores may be alive at once over all sequences and heads. On a CPU a tile and its
# gradient share the second-level cache (about 1 MB); a GPU wants as much work as possible in each of its kernels.
_CPU = (256, 512), 2**17
_GPU = (1024, 1024), 2**26


def tiled_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    tile_size: int | tuple[int, int] | None = None,
) -> Tensor:
    """softmax(query · keyᵀ · scale) · value, tile by tile, with a backward pass of its own.

    `lib.attention.scaled_dot_product_attention(..., backend="tiled")` is the usual door; this one lets you choose the tiles.

    Args:
        query: (…, L, d_k), any number of leading axes (batch, heads).
        key: (…, S, d_k). Leading axes broadcast; with `enable_gqa` the last of them is H_kv, which divides H.
        value: (…, S, d_v).
        attn_mask: boolean, True = may attend, or float, added to the scores and differentiable. (L or 1, S), alone or behind
            leading axes of 1 or the full size. Tiles without an allowed key are skipped.
        dropout_p: probability of dropping a weight. The draws follow torch's global seed; they are repeated in the backward
            pass, not stored.
        is_causal: query i sees keys 0 … i (upper left when L ≠ S). With `attn_mask`, both hold.
        scale: factor of the scores; 1/√d_k when not given.
        enable_gqa: query heads share key and value heads, H/H_kv neighbors each. No key or value is copied.
        tile_size: queries and keys of a tile, or one number for both; by default a size that suits the device. The last
            tiles may be smaller. The result does not depend on it, apart from rounding.

    Returns:
        (…, L, d_v) in the dtype of the query; summed up in float32 for half precision. A row without an allowed key is 0.

    Raises:
        TypeError: inputs that are not floating point or differ in dtype; a mask that is neither boolean nor float.
        ValueError: shapes that do not fit; a tile size below 1; a dropout outside 0 … 1.
        RuntimeError: a second derivative is asked for; take `backend="eager"` for that.

    Note:
        Compiled with `fullgraph=True`, it takes no dropout, and visits dead tiles too.
    """
    scores_shape = check_inputs(query, key, value, dropout_p, enable_gqa)
    if attn_mask is not None:
        masks.check(attn_mask, scores_shape)
        attn_mask = attn_mask.reshape((1,) * (len(scores_shape) - attn_mask.dim()) + attn_mask.shape)
    tile, alive = _CPU if query.device.type == "cpu" else _GPU
    plan = _Plan(
        tile=_tile_size(tile if tile_size is None else tile_size),
        alive=alive,
        scale=1 / math.sqrt(max(query.size(-1), 1)) if scale is None else scale,
        is_causal=is_causal,
        dropout_p=dropout_p,
        seed=int(torch.randint(2**62, ())) if dropout_p else 0,
    )
    query = query.expand(*scores_shape[:-2], -1, -1)  # from here on, key, value and mask alone may broadcast
    if not enable_gqa:
        return _Tiled.apply(query, key, value, attn_mask, plan)[0].to(query.dtype)

    # (…, H, L, d) -> (…, H_kv, H/H_kv, L, d): key and value then broadcast over the heads that share them.
    groups = (key.size(-3), query.size(-3) // key.size(-3))
    if attn_mask is not None:
        attn_mask = attn_mask.unsqueeze(-3) if attn_mask.size(-3) == 1 else attn_mask.unflatten(-3, groups)
    output = _Tiled.apply(query.unflatten(-3, groups), key.unsqueeze(-3), value.unsqueeze(-3), attn_mask, plan)[0]
    return output.flatten(-4, -3).to(query.dtype)


@dataclass(frozen=True)
class _Plan:
    """All that forward and backward must agree on, and the order in which both visit the tiles."""

    tile: tuple[int, int]
    alive: int
    scale: float
    is_causal: bool
    dropout_p: float
    seed: int

    def portions(self, outer: Sequence[int], L: int, S: int) -> Iterator[tuple[int, ...]]:
        """Indices into the leading axes: as many of them are split as it takes to keep one portion's tile small."""
        if 0 in outer:
            return iter(())
        tile = min(self.tile[0], L) * min(self.tile[1], S)
        split = 0
        while split < len(outer) and tile * math.prod(outer[split:]) > self.alive:
            split += 1
        return product(*map(range, outer[:split]))

    def rows(self, L: int) -> Iterator[slice]:
        return _cut(0, L, self.tile[0])

    def live(self, rows: slice, S: int, mask: Tensor | None) -> Iterator[tuple[slice, Tensor | None, int | None]]:
        """The key tiles that these queries may see: (columns, mask or None, diagonal or None).

        Within a tile, column j is hidden from row i where j > i + diagonal; no mask and no diagonal: nothing is hidden.
        """
        past = min(S, rows.start) if self.is_causal else S  # keys that no query of these is too early for
        crossed = _cut(past, min(S, rows.stop), self.tile[1]) if self.is_causal else ()
        for cols in chain(_cut(0, past, self.tile[1]), crossed):
            part = None if mask is None else _part(mask, rows, cols)
            # A compiled graph cannot depend on what a mask holds, and on the meta device it holds nothing.
            if part is not None and not torch.compiler.is_compiling() and not part.is_meta:
                # Minimum and maximum cost a tenth of any() and all() on a CPU, and serve float masks too.
                low, high = (x.item() for x in (part.view(torch.uint8) if part.dtype == torch.bool else part).aminmax())
                dead, neutral = (0, 1) if part.dtype == torch.bool else (-math.inf, 0.0)
                if high == dead:
                    continue
                if low == high == neutral:
                    part = None
            yield cols, part, rows.start - cols.start if cols.start >= past else None

    def dropper(self, device: torch.device):
        """A function that turns weights into the factors of dropout, 0 or 1/(1 − p): the same ones in every run of a plan."""
        if device.type == "meta":
            return torch.empty_like
        generator = torch.Generator(device).manual_seed(self.seed)
        kept = 1 - self.dropout_p
        return lambda weights: torch.empty_like(weights).bernoulli_(kept, generator=generator).div_(kept or 1.0)


class _Tiled(torch.autograd.Function):
    """(output, peak, total) in the dtype of the sums; the last two, (…, L, 1), serve the backward pass alone.

    The output is rounded to half precision outside, since the backward pass needs it as exact as it was summed.
    """

    @staticmethod
    def forward(query, key, value, mask, plan):
        (*outer, L, _), (*_, S, d_v) = query.shape, value.shape
        wide = torch.promote_types(query.dtype, torch.float32)
        output, peaks, totals = (query.new_zeros(*outer, L, width, dtype=wide) for width in (d_v, 1, 1))
        drop = plan.dropper(query.device) if plan.dropout_p else None
        with without_autocast(query.device):
            for at in plan.portions(outer, L, S):
                q, k, v = _widen(at, plan.scale, query, key, value)
                m = _pick(mask, at)
                for rows in plan.rows(L):
                    result = _attend(q[..., rows, :], k, v, plan.live(rows, S, m), drop)
                    for whole, part in zip((output, peaks, totals), result, strict=True):
                        whole[at][..., rows, :] = part
        return output, peaks, totals

    @staticmethod
    def setup_context(ctx, inputs, outputs):
        *tensors, ctx.plan = inputs
        ctx.save_for_backward(*tensors, *outputs)
        ctx.mark_non_differentiable(*outputs[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx, d_output, *_):
        query, key, value, mask, output, peaks, totals = ctx.saved_tensors
        plan, L, S = ctx.plan, query.size(-2), key.size(-2)
        d_query, d_key, d_value = (torch.zeros_like(x, dtype=peaks.dtype) for x in (query, key, value))
        d_mask = torch.zeros_like(mask, dtype=peaks.dtype) if ctx.needs_input_grad[3] else None
        drop = plan.dropper(query.device) if plan.dropout_p else None
        with without_autocast(query.device):
            for at in plan.portions(output.shape[:-2], L, S):
                q, k, v = _widen(at, plan.scale, query, key, value)
                m = _pick(mask, at)
                sums = [_pick(x, at) for x in (d_query, d_key, d_value, d_mask)]
                for rows in plan.rows(L):
                    part = (x[at][..., rows, :] for x in (d_output, output, peaks, totals))
                    _attend_backward(rows, q, k, v, plan.live(rows, S, m), drop, *part, *sums)
            d_query *= plan.scale
        grads = ((d_query, query), (d_key, key), (d_value, value), (d_mask, mask))
        return *(None if grad is None else grad.to(x.dtype) for grad, x in grads), None


def _attend(q, k, v, live, drop) -> tuple[Tensor, Tensor, Tensor]:
    """A tile of queries over all its tiles of keys: output, peak and total of each row."""
    output, total = q.new_zeros(*q.shape[:-1], v.size(-1)), q.new_zeros(*q.shape[:-1], 1)
    # From the lowest number up, and not from −inf: −inf − (−inf) is no number, and a row may meet no allowed key for long.
    peak = torch.full_like(total, torch.finfo(q.dtype).min)
    for cols, mask, diagonal in live:
        scores = _scores(q, k[..., cols, :], mask, diagonal)
        old, peak = peak, torch.maximum(peak, scores.amax(dim=-1, keepdim=True))
        weights, shrink = _exp(scores, peak), _exp(old, peak)
        total.mul_(shrink).add_(weights.sum(dim=-1, keepdim=True))
        output.mul_(shrink).add_((weights if drop is None else weights.mul_(drop(weights))) @ v[..., cols, :])
    total.masked_fill_(total == 0.0, 1.0)  # rows without any key: their output is 0 already
    return output.div_(total), peak, total


def _attend_backward(rows, q, k, v, live, drop, d_output, output, peak, total, d_query, d_key, d_value, d_mask) -> None:
    """Form the tiles of these rows once more and add what they contribute to the gradients.

    With weights P = 2^(scores − peak) / total and dP = d_output · valueᵀ, the gradient of the scores is P · (dP − delta), where
    delta = Σ_j P_j dP_j = d_output · output, a number for each row (Dao et al. 2022, appendix B.2).
    """
    q = q[..., rows, :]
    delta = (d_output * output).sum(dim=-1, keepdim=True) / total
    d_output = d_output / total  # one division for each row; the weights of a tile then need none
    for cols, mask, diagonal in live:
        key, value = k[..., cols, :], v[..., cols, :]
        weights = _exp(_scores(q, key, mask, diagonal), peak)
        d_weights = d_output @ value.transpose(-2, -1)
        if drop is None:
            dropped = weights
        else:
            factors = drop(weights)
            dropped = weights * factors
            d_weights *= factors
        _accumulate(d_value[..., cols, :], dropped.transpose(-2, -1) @ d_output)
        d_scores = d_weights.sub_(delta).mul_(weights)
        _accumulate(d_query[..., rows, :], d_scores @ key)
        _accumulate(d_key[..., cols, :], d_scores.transpose(-2, -1) @ q)
        if d_mask is not None:
            _accumulate(_part(d_mask, rows, cols), d_scores)


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, diagonal: int | None) -> Tensor:
    """The scores of one tile, the same ones bit for bit in both passes. q is scaled already."""
    scores = q @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else scores.add_(mask)
    if diagonal is not None:
        # Several times faster than masked_fill. Zeros come first, so that a NaN in the future stays there.
        future = scores.new_full(scores.shape[-2:], -torch.inf).triu_(diagonal + 1)
        scores = scores.tril_(diagonal).add_(future)
    return scores


def _exp(x: Tensor, base: Tensor) -> Tensor:
    """e^(x − base), in place of x. The difference comes first: it is small where x is large, so no digits are lost."""
    return x.sub_(base).mul_(_LOG2_E).exp2_()


def _widen(at, scale: float, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One portion of the inputs in the dtype of the sums, the query scaled."""
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = (_pick(x, at).to(wide) for x in (query, key, value))
    return q * scale, k, v


def _cut(start: int, stop: int, step: int) -> Iterator[slice]:
    """Slices of this step from start to stop; the last one may be shorter."""
    return (slice(at, min(at + step, stop)) for at in range(start, stop, step))


def _pick(x: Tensor | None, at: tuple[int, ...]) -> Tensor | None:
    """The portion of x at these leading indices, a view; an axis of 1 serves every index."""
    return None if x is None else x.detach()[tuple(i if x.size(axis) > 1 else 0 for axis, i in enumerate(at))]


def _part(mask: Tensor, rows: slice, cols: slice) -> Tensor:
    """The tile of a (…, L or 1, S) mask, a view."""
    return mask[..., rows if mask.size(-2) > 1 else slice(None), cols]


def _accumulate(total: Tensor, part: Tensor) -> None:
    """Add in place, summing over the axes along which the input was broadcast."""
    total += part if part.shape == total.shape else part.sum_to_size(total.shape)


def _tile_size(size: int | tuple[int, int]) -> tuple[int, int]:
    rows, cols = (size, size) if isinstance(size, int) else size
    if rows < 1 or cols < 1:
        raise ValueError(f"tile_size counts queries and keys, at least 1 each, got {(rows, cols)}.")
    return rows, cols
