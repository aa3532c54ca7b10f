"""What every function of this folder asks of its inputs, and the fold that cuts a sequence into parts."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lib import masks
from lib.inputs import check_inputs, shapes


def check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, enable_gqa: bool, what: str) -> Tensor | None:
    """Refuse what self-attention over parts cannot take, and return the mask with four axes.

    Args:
        query, key, value: (B, H, L, d), of one length, B and H the same in all (H_kv in key and value with `enable_gqa`).
        attn_mask: a mask of keys, the same for every query: (1, L) or (B or 1, H or 1, 1, L).
        what: the caller's name for itself, as a sentence of an error begins.

    Raises:
        TypeError, ValueError: all that `lib.inputs.check_inputs` raises; other than four axes; axes that would have to
            broadcast; queries and keys of different number; a mask with a row for each query.
    """
    if not query.dim() == key.dim() == value.dim() == 4:
        raise ValueError(f"{what} takes (B, H, L, d), four axes, got {shapes(query, key, value)}.")
    scores_shape = check_inputs(query, key, value, 0.0, enable_gqa)
    heads = query.size(1) if enable_gqa else key.size(1)
    if query.shape[:2] != scores_shape[:2] or key.shape[:2] != value.shape[:2] or (key.size(0), heads) != scores_shape[:2]:
        raise ValueError(
            f"{what} does not broadcast: batch and heads must agree, got {shapes(query, key, value)}. Use expand first."
        )
    L, S = scores_shape[-2:]
    if L != S:
        raise ValueError(
            f"{what} is self-attention, a key for each query, got {L} queries and {S} keys. "
            "For other lengths use lib.attention with a mask of lib.masks."
        )
    return key_mask(attn_mask, scores_shape, what)


def key_mask(attn_mask: Tensor | None, scores_shape: tuple[int, ...], what: str) -> Tensor | None:
    """The mask as (B or 1, H or 1, 1, S).

    Raises:
        TypeError, ValueError: what `masks.check` raises; a mask with a row for each query.
    """
    if attn_mask is None:
        return None
    masks.check(attn_mask, scores_shape)
    if attn_mask.size(-2) != 1:
        raise ValueError(
            f"{what} takes a mask of keys, the same for every query: (B or 1, H or 1, 1, S), as masks.padding makes it; "
            f"got {tuple(attn_mask.shape)}. A mask with a row for each query has n² entries: use lib.attention for it."
        )
    return attn_mask[None, None] if attn_mask.dim() == 2 else attn_mask


def positive(**sizes: int) -> None:
    """Refuse a size that is no whole number or below 1, by name."""
    for name, size in sizes.items():
        if not hasattr(size, "__index__"):
            raise TypeError(f"{name} must be a whole number, got {size!r}.")
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}.")


def fitted(size: int, L: int) -> int:
    """The size of a part, cut to that of the sequence: what lies beyond would be padding, and cost as much as a token."""
    return size if size <= L else max(L, 1)


def pad(x: Tensor, multiple: int, fill: float = 0.0, dim: int = -2) -> Tensor:
    """Lengthen axis `dim`, −2 or −1, at its end to a whole multiple."""
    missing = -x.size(dim) % multiple
    return F.pad(x, (0, missing) if dim == -1 else (0, 0, 0, missing), value=fill) if missing else x


def pad_mask(mask: Tensor | None, L: int, multiple: int, device: torch.device) -> Tensor | None:
    """Lengthen a mask of keys likewise, hiding what was added; None if there is nothing to hide."""
    if mask is None:
        if L % multiple == 0:
            return None
        mask = torch.ones(1, 1, 1, L, dtype=torch.bool, device=device)
    return pad(mask, multiple, False if mask.dtype == torch.bool else -torch.inf, dim=-1)
