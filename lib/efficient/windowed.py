"""Attention through a sliding window, in work and memory that grow with n · window instead of n²."""

import torch
from torch import Tensor

from lib import masks
from lib.attention import scaled_dot_product_attention
from lib.efficient._inputs import check, positive


def windowed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    *,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What attention under `masks.sliding_window(L, window, is_causal)` gives, without the work for what it hides.

    Queries are cut into blocks, and a block attends to the stretch of keys that its windows cover, in one call for all blocks:

        window 3, causal, blocks of 2       ■ attended to
        ■                                   · in the stretch of the block, hidden by its mask
        ■ ■                                 blank: no work at all
        ■ ■ ■ ·
        · ■ ■ ■
            ■ ■ ■ ·
            · ■ ■ ■

    Args:
        query: (B, H, L, d_k); any L.
        key: (B, H, L, d_k), or (B, H_kv, L, d_k) with `enable_gqa`.
        value: (B, H, L, d_v), or (B, H_kv, L, d_v) with `enable_gqa`.
        window: keys that a query sees, itself included. Causal: the window − 1 keys before it. Two-sided: (window − 1) / 2
            on either side, so it must be odd.
        attn_mask: a mask of keys, (B or 1, H or 1, 1, L), boolean or float: `masks.padding(lengths, L)`, for example.
        dropout_p, scale, enable_gqa: as in `lib.attention.scaled_dot_product_attention`.
        is_causal: no look at the future.

    Returns:
        (B, H, L, d_v). A row without an allowed key is 0.

    Raises:
        TypeError, ValueError: all that `scaled_dot_product_attention` and `masks.sliding_window` raise; a window that is no
            whole number; a key for each query is needed; a mask with a row for each query.

    Source: Beltagy et al. 2020, "Longformer", section 3.1.
    """
    attn_mask = check(query, key, value, attn_mask, enable_gqa, "windowed attention")
    positive(window=window)
    masks.sliding_window(0, window, is_causal)  # refuses a window that it could not draw
    L = query.size(-2)
    left, right = (window - 1, 0) if is_causal else (window // 2, window // 2)

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, first: int) -> Tensor:
        """Queries over a stretch of keys; the first query stands at key `first`."""
        band = masks.sliding_window(k.size(-2), window, is_causal, device=q.device)[first : first + q.size(-2)]
        return scaled_dot_product_attention(q, k, v, masks.combine(band, mask), dropout_p, scale=scale, enable_gqa=enable_gqa)

    def attend_to(keys: slice, q: Tensor, first: int) -> Tensor:
        return attend(q, key[:, :, keys], value[:, :, keys], None if attn_mask is None else attn_mask[..., keys], first)

    # Half a window: smaller blocks waste less on what is hidden, larger ones copy the keys less often.
    block = max(window // 2, 32)
    count = (L - left - right) // block  # blocks whose windows all lie inside the sequence
    if count < 2:
        return attend(query, key, value, attn_mask, 0)
    # Split and not sliced: the gradient of a slice is as long as the sequence, and mostly 0.
    head, body, tail = query.split([left, count * block, L - left - count * block], dim=2)
    span = left + block + right
    output = attend(
        body.unflatten(2, (count, block)).transpose(1, 2).flatten(0, 1),  # (B·count, H, block, d_k)
        _stretches(key, span, block),
        _stretches(value, span, block),
        None if attn_mask is None else _mask_stretches(attn_mask, query.size(0), span, block),
        left,
    )
    output = output.unflatten(0, (query.size(0), count)).transpose(1, 2).flatten(2, 3)  # -> (B, H, count·block, d_v)
    before = attend_to(slice(0, left + right), head, 0)
    after = attend_to(slice(count * block, L), tail, left)
    return torch.cat([before, output, after], dim=2)


def _stretches(x: Tensor, span: int, step: int) -> Tensor:
    """Stretches of `span` positions, a new one every `step`, as many as there are whole: (B, H, L, d) -> (B·n, H, span, d)."""
    return x.unfold(2, span, step).permute(0, 2, 1, 4, 3).flatten(0, 1)


def _mask_stretches(mask: Tensor, batch: int, span: int, step: int) -> Tensor:
    """The same of a mask of keys: (B or 1, H or 1, 1, L) -> (B·n, H or 1, 1, span)."""
    return mask.expand(batch, -1, -1, -1).unfold(3, span, step).permute(0, 3, 1, 2, 4).flatten(0, 1)
