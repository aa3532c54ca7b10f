"""Masks: who may attend to whom, always as booleans with True = may attend.

That is the meaning of `torch.nn.functional.scaled_dot_product_attention`. It is the opposite of `key_padding_mask` in
`torch.nn.MultiheadAttention`, where True = ignore; `from_torch_padding` converts. Half of the mask bugs in public code are
this one polarity, so no function here has the other.

Shapes: L queries, S keys, B sequences in the batch, H heads. Attention takes `(L, S)` or `(B or 1, H or 1, L or 1, S)`.
Masks combine by `&` (both must allow), `|` (either may allow) and `combine` (booleans with floats too).
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def causal(L: int, S: int | None = None, *, offset: int | None = None, device=None) -> Tensor:
    """No look at the future: query i stands at position `offset + i` and sees the keys up to and including it.

    Args:
        L: number of queries.
        S: number of keys; L when not given.
        offset: position of the first query among the keys. The default, S − L, puts the last query at the last key, so
            that a step with a cache of past keys sees all of them. `offset=0` is what torch's `is_causal=True` means.

    Returns:
        (L, S) boolean, True = may attend. With L > S the first L − S rows have nothing to attend to.
    """
    S = L if S is None else S
    _check_lengths(L=L, S=S)
    offset = S - L if offset is None else offset
    return _distance(L, S, offset, device) >= 0


def padding(lengths: Tensor | Sequence[int], S: int | None = None, *, device=None) -> Tensor:
    """Hide the padding behind sequences of unequal length: keys from `lengths[b]` on are not attended to.

    Args:
        lengths: (B,) integers, the number of real tokens of each sequence, 0 … S.
        S: the padded length; the longest length when not given.

    Returns:
        (B, 1, 1, S) boolean, True = a real token. The two axes of 1 stand for every head and every query.

    Raises:
        TypeError: lengths that are not integers (a ready-made padding mask, for example).
        ValueError: lengths that are not one-dimensional, or outside 0 … S.
    """
    lengths = torch.as_tensor(lengths, device=device)
    if lengths.numel() == 0:
        lengths = lengths.to(torch.int64)  # an empty list carries no type of its own
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise TypeError(
            f"lengths must be integers, one for each sequence, got {lengths.dtype}. "
            "If this is a key_padding_mask of torch (True = ignore), use masks.from_torch_padding."
        )
    if lengths.dim() != 1:
        raise ValueError(f"lengths must have one axis (B,), got shape {tuple(lengths.shape)}.")
    longest = int(lengths.max()) if lengths.numel() else 0
    shortest = int(lengths.min()) if lengths.numel() else 0
    S = longest if S is None else S
    if shortest < 0 or longest > S:
        raise ValueError(f"lengths must lie in 0 … S = {S}, got {shortest} … {longest}. Raise S or cut the sequences.")
    real = torch.arange(S, device=lengths.device) < lengths[:, None]  # (B, S)
    return real[:, None, None, :]


def sliding_window(L: int, window: int, causal: bool = True, *, S: int | None = None, device=None) -> Tensor:
    """Each query sees `window` keys around it, itself included.

    Causal: the query and the window − 1 keys before it. Two-sided: (window − 1) / 2 keys on either side, so the window must
    be odd. At the ends of the sequence fewer keys are there to be seen.

    Args:
        L: number of queries.
        window: number of keys seen, the query itself included; at least 1.
        S: number of keys; L when not given. As in `causal`, the last query stands at the last key.

    Returns:
        (L, S) boolean, True = may attend.

    Raises:
        ValueError: a window below 1, or an even one that is two-sided.
    """
    S = L if S is None else S
    _check_lengths(L=L, S=S)
    if window < 1:
        raise ValueError(f"window counts the query itself, so it is at least 1, got {window}.")
    distance = _distance(L, S, S - L, device)
    if causal:
        return (distance >= 0) & (distance < window)
    if window % 2 == 0:
        raise ValueError(
            f"a two-sided window is centered on the query, so it is odd, got {window}. "
            f"Use {window - 1} or {window + 1}, or causal=True."
        )
    return distance.abs() <= window // 2


def strided(L: int, stride: int, causal: bool = True, *, S: int | None = None, device=None) -> Tensor:
    """Each query sees itself and the keys at whole multiples of `stride` away.

    The long-range half of the strided pattern of the Sparse Transformer (Child et al. 2019, section 4.3); the other half is
    `sliding_window`, and `sliding_window(L, s) | strided(L, s)` is the whole of it.

    Returns:
        (L, S) boolean, True = may attend.

    Raises:
        ValueError: a stride below 1.
    """
    S = L if S is None else S
    _check_lengths(L=L, S=S)
    if stride < 1:
        raise ValueError(f"stride must be at least 1, got {stride}.")
    distance = _distance(L, S, S - L, device)
    links = distance % stride == 0
    return links & (distance >= 0) if causal else links


def blocks(L: int, block_size: int, causal: bool = False, *, device=None) -> Tensor:
    """Full attention inside consecutive blocks, none between them. The last block may be shorter.

    Returns:
        (L, L) boolean, True = may attend.

    Raises:
        ValueError: a block size below 1.
    """
    _check_lengths(L=L)
    if block_size < 1:
        raise ValueError(f"block_size must be at least 1, got {block_size}.")
    block = torch.arange(L, device=device) // block_size
    same = block[:, None] == block
    return same & (_distance(L, L, 0, device) >= 0) if causal else same


def from_torch_padding(key_padding_mask: Tensor) -> Tensor:
    """Turn the `key_padding_mask` of `torch.nn.MultiheadAttention` into a mask of this library.

    Args:
        key_padding_mask: (B, S). Boolean with True = ignore, or float to be added to the scores (−inf = ignore).

    Returns:
        (B, 1, 1, S). Boolean with True = may attend; a float mask keeps its values, since adding has one meaning only.

    Raises:
        TypeError: neither boolean nor float.
        ValueError: not two axes.
    """
    if key_padding_mask.dim() != 2:
        raise ValueError(f"key_padding_mask must have shape (B, S), got {tuple(key_padding_mask.shape)}.")
    if key_padding_mask.dtype == torch.bool:
        return ~key_padding_mask[:, None, None, :]
    if key_padding_mask.is_floating_point():
        return key_padding_mask[:, None, None, :]
    raise TypeError(
        f"key_padding_mask must be boolean (True = ignore) or float (added to the scores), got {key_padding_mask.dtype}."
    )


def combine(*masks: Tensor | None) -> Tensor | None:
    """Every mask at once: a link stays only where all of them allow it, and float masks add up.

    Args:
        masks: boolean (True = may attend) or float (added) masks whose shapes broadcast; None is no mask.

    Returns:
        Boolean if all are boolean, else float with −inf where a boolean mask forbids; None if there is no mask at all.

    Raises:
        TypeError: a mask that is neither boolean nor float.
    """
    joined = None
    for mask in masks:
        if mask is None:
            continue
        _check_kind(mask)
        if joined is None:
            joined = mask
        elif joined.dtype == torch.bool and mask.dtype == torch.bool:
            joined = joined & mask
        elif joined.dtype == torch.bool:
            joined = torch.where(joined, mask, -torch.inf)
        elif mask.dtype == torch.bool:
            joined = torch.where(mask, joined, -torch.inf)
        else:
            joined = joined + mask
    return joined


def empty_rows(mask: Tensor) -> Tensor:
    """Which queries have nothing to attend to: (…, L, 1) boolean, True = no key is allowed.

    Raises:
        TypeError: a mask that is neither boolean nor float.
    """
    _check_kind(mask)
    allowed = mask if mask.dtype == torch.bool else mask != -torch.inf
    return ~allowed.any(dim=-1, keepdim=True)


def check(mask: Tensor, scores_shape: Sequence[int]) -> None:
    """Refuse a mask that attention could misread. Shapes that would broadcast by accident are errors too.

    Args:
        mask: the user's mask.
        scores_shape: shape of the scores it will be applied to, (…, L, S); (B, H, L, S) in every module.

    Raises:
        TypeError: neither boolean nor float.
        ValueError: a number of axes other than 2 or that of the scores, or sizes that do not fit.
    """
    _check_kind(mask)
    scores_shape, shape = tuple(scores_shape), tuple(mask.shape)
    if len(shape) == 3 and len(scores_shape) == 4:
        raise ValueError(
            f"a 3-D mask is ambiguous: {shape} could be (B, L, S) or (H, L, S), and would broadcast in silence where B = H. "
            "Insert the missing axis: mask[:, None] for one mask per sequence, mask[None] for one per head."
        )
    if len(shape) not in (2, len(scores_shape)):
        raise ValueError(f"a mask has 2 axes or the {len(scores_shape)} axes of the scores {scores_shape}, got {shape}.")
    *outer, keys = scores_shape[-len(shape) :]
    fits = shape[-1] == keys and all(have in (1, want) for have, want in zip(shape[:-1], outer, strict=True))
    if not fits:
        raise ValueError(
            f"a mask of shape {shape} does not fit scores of shape {scores_shape}: the last axis must be the "
            f"{keys} keys, each other axis 1 or the size of the scores."
        )


def draw(mask: Tensor) -> str:
    """Draw a mask as text, a row for each query and a column for each key.

    `■` may attend, `·` may not, `▪` may with a finite bias. Axes of size 1 in front are dropped.

    Args:
        mask: (L, S), or with leading axes of size 1; boolean or float.

    Raises:
        TypeError: a mask that is neither boolean nor float.
        ValueError: more than one mask, since a drawing shows one: index it first, `draw(mask[0, 0])`.
    """
    _check_kind(mask)
    shape = tuple(mask.shape)
    if mask.dim() < 2 or any(size != 1 for size in shape[:-2]):
        raise ValueError(f"draw shows one mask of shape (L, S), got {shape}. Index the leading axes first: mask[0, 0].")
    mask = mask.reshape(shape[-2:])
    if mask.dtype != torch.bool:
        biased = (mask != 0) & (mask != -torch.inf)
        signs = torch.where(biased, 2, (mask == 0).int())
    else:
        signs = mask.int()
    return "\n".join(" ".join("·■▪"[sign] for sign in row) for row in signs.tolist())


def _distance(L: int, S: int, offset: int, device) -> Tensor:
    """(L, S) integers: how far key j lies behind query i; negative in the future. Query i stands at `offset + i`."""
    return torch.arange(offset, offset + L, device=device)[:, None] - torch.arange(S, device=device)


def _check_kind(mask: Tensor) -> None:
    if not isinstance(mask, Tensor):
        raise TypeError(f"a mask is a tensor, got {type(mask).__name__}.")
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"a mask is boolean (True = may attend) or float (added to the scores), got {mask.dtype}. "
            "If 1 means 'may attend' in yours, pass mask.bool()."
        )


def _check_lengths(**lengths: int) -> None:
    for name, length in lengths.items():
        if length < 0:
            raise ValueError(f"{name} is a number of positions, at least 0, got {length}.")
