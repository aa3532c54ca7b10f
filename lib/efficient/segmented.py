"""Attention that is full inside a segment and reaches the other segments through summaries of them."""

import torch
from torch import Tensor, nn

from lib import masks
from lib.attention import scaled_dot_product_attention
from lib.efficient._inputs import check, fitted, pad, pad_mask, positive


def segmented_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    segment: int,
    *,
    probes: Tensor | None = None,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Each query attends to the keys of its own segment and to r summaries of every other one, in one softmax.

        segments of 3, causal, r = 1        ■ a key      Σ a summary of a whole segment
        ■
        ■ ■
        ■ ■ ■
          Σ   ■
          Σ   ■ ■
          Σ   ■ ■ ■
          Σ     Σ   ■

    A summary is itself attention: a probe asks the segment, and softmax(probe · key) weighs both its keys and its values. With
    no probes given there is one of zeros, and the summary is the mean. A summary speaks for several keys, so their number
    (over r) counts in the softmax as its weight: log(number / r) is added to its score. Hence segments of 1, a single segment,
    and segments of equal keys all give exact attention.

    Work and memory: L · (segment + r · L / segment), least at a segment of about √(r · L).

    Args:
        query: (B, H, L, d_k); any L, the last segment may be shorter.
        key: (B, H, L, d_k), or (B, H_kv, L, d_k) with `enable_gqa`.
        value: (B, H, L, d_v), or (B, H_kv, L, d_v) with `enable_gqa`.
        segment: positions in a segment.
        probes: (H_kv or 1, r, d_k), the queries that make the summaries; see `SegmentedAttention`.
        attn_mask: a boolean mask of keys, (B or 1, 1, 1, L): `masks.padding(lengths, L)`, for example.
        dropout_p, scale, enable_gqa: as in `lib.attention.scaled_dot_product_attention`. The scale does not touch the probes.
        is_causal: no look at the future: earlier keys of the own segment, summaries of earlier segments.

    Returns:
        (B, H, L, d_v). A row without an allowed key is 0.

    Raises:
        TypeError, ValueError: all that `scaled_dot_product_attention` raises; a segment that is no whole number or below 1; a
            key for each query is needed; a mask that is not boolean, differs between heads, or has a row for each query; probes
            of another shape.

    Source: after Rae et al. 2020, "Compressive Transformers", section 3.2 (pooled memories), with every other segment kept; the
        weight of a summary follows from the softmax of equal keys.
    """
    attn_mask = check(query, key, value, attn_mask, enable_gqa, "segmented attention")
    positive(segment=segment)
    _check_mask(attn_mask)
    (B, _, L, _), d_k = query.shape, key.size(-1)
    segment = fitted(segment, L)
    probes = key.new_zeros(1, 1, d_k) if probes is None else _check_probes(probes, key)

    q, k, v = (_segments(x, segment) for x in (query, key, value))  # (B·n, H, segment, d)
    count = -(-L // segment)
    real = pad_mask(attn_mask, L, segment, query.device)
    if real is None:
        real = torch.ones(1, 1, 1, L, dtype=torch.bool, device=query.device)
    real = real.expand(B, -1, -1, -1).unflatten(-1, (-1, segment)).movedim(-2, 1).flatten(0, 1)  # (B·n, 1, 1, segment)

    r = probes.size(-2)
    asked = probes.to(k.dtype).expand(q.size(0), k.size(1), -1, -1)
    summary = scaled_dot_product_attention(asked, k, torch.cat([k, v], dim=-1), real, scale=1.0)  # (B·n, H, r, d_k + d_v)
    # Every segment gets the summaries of all: (B·n, H, r, d) -> (B, 1, H, n·r, d) -> (B·n, H, n·r, d)
    summary = summary.unflatten(0, (B, count)).transpose(1, 2).flatten(2, 3)
    summary = summary[:, None].expand(-1, count, -1, -1, -1).flatten(0, 1)
    summary_k, summary_v = summary.split([d_k, v.size(-1)], dim=-1)
    mask = _mask(real, count, r, is_causal, torch.promote_types(query.dtype, torch.float32))
    k, v = torch.cat([k, summary_k], dim=-2), torch.cat([v, summary_v], dim=-2)
    output = scaled_dot_product_attention(q, k, v, mask, dropout_p, scale=scale, enable_gqa=enable_gqa)
    return output.unflatten(0, (B, count)).transpose(1, 2).flatten(2, 3)[:, :, :L]  # -> (B, H, L, d_v)


class SegmentedAttention(nn.Module):
    """`segmented_attention` with learned summaries: the probes are its only parameters, (H_kv, r, d_k).

    Args:
        segment: positions in a segment.
        num_kv_heads: heads of key and value, H_kv.
        d_k: width of a key.
        summaries: summaries of a segment, r. Probes start apart from each other, N(0, 1/d_k), else they would stay copies.

    Raises:
        ValueError: a size below 1.
    """

    def __init__(self, segment: int, num_kv_heads: int, d_k: int, summaries: int = 1):
        super().__init__()
        positive(segment=segment, num_kv_heads=num_kv_heads, d_k=d_k, summaries=summaries)
        self.segment = segment
        self.probes = nn.Parameter(torch.randn(num_kv_heads, summaries, d_k) / d_k**0.5)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options) -> Tensor:
        """(B, H, L, d_k), (B, H_kv, L, d_k), (B, H_kv, L, d_v) -> (B, H, L, d_v); options as in `segmented_attention`."""
        return segmented_attention(query, key, value, self.segment, probes=self.probes, **options)


def _mask(real: Tensor, count: int, r: int, is_causal: bool, dtype: torch.dtype) -> Tensor:
    """What is added to the scores: (B·n, 1, segment, segment + n·r), own keys first, then the summaries of all segments."""
    size = real.size(-1)
    own = real.expand(-1, -1, size, -1)
    if is_causal:
        own = own & masks.causal(size, device=real.device)
    own = torch.zeros(own.shape, dtype=dtype, device=real.device).masked_fill_(~own, -torch.inf)
    # log 0 = −inf hides the summary of a segment that is padding only.
    weight = (
        (real.sum(dim=-1).to(dtype) / r).log().reshape(real.size(0) // max(count, 1), 1, count)
    )  # (B, 1, n): the summarized segments
    index = torch.arange(count, device=real.device)
    seen = index < index[:, None] if is_causal else index != index[:, None]
    others = torch.where(seen, weight, -torch.inf).repeat_interleave(r, dim=-1)  # (B, n, n·r)
    others = others.flatten(0, 1)[:, None, None].expand(-1, -1, size, -1)
    return torch.cat([own, others], dim=-1)


def _segments(x: Tensor, segment: int) -> Tensor:
    """(B, H, L, d) -> (B, H, n, segment, d) -> (B·n, H, segment, d)."""
    return pad(x, segment).unflatten(2, (-1, segment)).transpose(1, 2).flatten(0, 1)


def _check_mask(mask: Tensor | None) -> None:
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise TypeError(f"segmented attention takes a boolean mask of keys, since summaries count them, got {mask.dtype}.")
    if mask.size(1) != 1:
        raise ValueError(f"segmented attention takes one mask for all heads, (B or 1, 1, 1, L), got {tuple(mask.shape)}.")


def _check_probes(probes: Tensor, key: Tensor) -> Tensor:
    _, heads, _, d_k = key.shape
    if probes.dim() != 3 or probes.size(0) not in (1, heads) or probes.size(1) < 1 or probes.size(2) != d_k:
        raise ValueError(f"probes must be (H_kv or 1, r, d_k) = ({heads} or 1, at least 1, {d_k}), got {tuple(probes.shape)}.")
    return probes
