"""Attention to every s-th position, by folding the sequence instead of masking it."""

from torch import Tensor

from lib.attention import scaled_dot_product_attention
from lib.efficient._inputs import check, fitted, pad, pad_mask, positive


def strided_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    stride: int,
    *,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What attention under `masks.strided(L, stride, is_causal)` gives, in 1/stride of the work.

    Positions a multiple of the stride apart see only each other. Written row by row into a table of `stride` columns, each
    column is a short sequence of its own with full attention inside:

        stride 3, length 8        0 1 2
                                  3 4 5        position 6 sees 0, 3 and itself
                                  6 7

    This is the far-reaching half of the Sparse Transformer's strided pattern; the near half is `windowed_attention` with
    `window=stride`. Give some heads the one and some the other (their section 5.1).

    Args:
        query: (B, H, L, d_k); any L.
        key: (B, H, L, d_k), or (B, H_kv, L, d_k) with `enable_gqa`.
        value: (B, H, L, d_v), or (B, H_kv, L, d_v) with `enable_gqa`.
        stride: distance between the keys that a query sees; 1 is full attention.
        attn_mask: a mask of keys, (B or 1, H or 1, 1, L), boolean or float: `masks.padding(lengths, L)`, for example.
        dropout_p, scale, enable_gqa: as in `lib.attention.scaled_dot_product_attention`.
        is_causal: no look at the future.

    Returns:
        (B, H, L, d_v). A row without an allowed key is 0.

    Raises:
        TypeError, ValueError: all that `scaled_dot_product_attention` raises; a stride that is no whole number or below 1; a
            key for each query is needed; a mask with a row for each query.

    Source: Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section 4.3.
    """
    attn_mask = check(query, key, value, attn_mask, enable_gqa, "strided attention")
    positive(stride=stride)
    B, _, L, _ = query.shape
    stride = fitted(stride, L)  # a longer one leads no further
    if attn_mask is not None or not is_causal:  # a causal query never sees the padding, which lies in its future
        attn_mask = pad_mask(attn_mask, L, stride, query.device)
    if attn_mask is not None:
        # (B, H, 1, rows·stride) -> (B, stride, H, 1, rows) -> (B·stride, H, 1, rows)
        attn_mask = attn_mask.expand(B, -1, -1, -1).unflatten(-1, (-1, stride)).movedim(-1, 1).flatten(0, 1)
    columns = (_columns(x, stride) for x in (query, key, value))
    output = scaled_dot_product_attention(*columns, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    # (B·stride, H, rows, d_v) -> (B, H, rows, stride, d_v) -> (B, H, rows·stride, d_v)
    return output.unflatten(0, (B, stride)).movedim(1, 3).flatten(2, 3)[:, :, :L]


def _columns(x: Tensor, stride: int) -> Tensor:
    """(B, H, L, d) -> (B, H, rows, stride, d) -> (B, stride, H, rows, d) -> (B·stride, H, rows, d)."""
    return pad(x, stride).unflatten(2, (-1, stride)).movedim(3, 1).flatten(0, 1)
