"""What attention asks of query, key and value, whatever computes it: one check and one set of errors for every backend.

Shapes: (…, L, d_k), (…, S, d_k) and (…, S, d_v), with any leading axes (batch, heads).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def autocast_inputs(*tensors: Tensor) -> list[Tensor]:
    """What autocast does at the door of torch's function, so that every backend starts from the same numbers."""
    device = tensors[0].device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return list(tensors)
    dtype = torch.get_autocast_dtype(device)
    return [x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in tensors]


def without_autocast(device: torch.device) -> AbstractContextManager:
    """A context in which nothing is rounded behind one's back; on devices that know no autocast there is nothing to do."""
    return torch.autocast(device.type, enabled=False) if torch.amp.is_autocast_available(device.type) else nullcontext()


def check_inputs(query: Tensor, key: Tensor, value: Tensor, dropout_p: float, enable_gqa: bool) -> tuple[int, ...]:
    """Refuse inputs that do not fit together, and return the shape of the scores, (…, L, S).

    Args:
        query, key, value: (…, L, d_k), (…, S, d_k) and (…, S, d_v), whose leading axes broadcast.
        dropout_p: a probability.
        enable_gqa: whether the last of the leading axes of key and value, H_kv, is one that divides the query's, H.

    Raises:
        TypeError: inputs that are not floating point or differ in dtype.
        ValueError: shapes that do not fit, naming them; a number that is no probability.
    """
    if not (query.dtype == key.dtype == value.dtype and query.is_floating_point()):
        raise TypeError(f"query, key and value must share one floating dtype, got {query.dtype}, {key.dtype}, {value.dtype}.")
    if not query.dim() == key.dim() == value.dim() >= 2:
        raise ValueError(
            "query, key and value must have the same number of axes, at least 2 (length, width), got "
            f"{shapes(query, key, value)}."
        )
    if query.size(-1) != key.size(-1):
        raise ValueError(
            f"a query is matched with a key by their dot product, so their widths must agree: d_k is {query.size(-1)} in the "
            f"query and {key.size(-1)} in the key ({shapes(query, key, value)}). Only the value may have another width."
        )
    if key.size(-2) != value.size(-2):
        raise ValueError(
            f"each key stands for one value, got {key.size(-2)} keys and {value.size(-2)} values ({shapes(query, key, value)})."
        )
    if not 0.0 <= dropout_p <= 1.0:
        raise ValueError(f"dropout_p is a probability, 0 … 1, got {dropout_p}.")
    return (*_leading_axes(query, key, value, enable_gqa), query.size(-2), key.size(-2))


def _leading_axes(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> Sequence[int]:
    """The axes before length and width that all three broadcast to, heads of the query among them."""
    outer = [x.shape[:-2] for x in (query, key, value)]
    if enable_gqa:
        heads = [x[-1] if x else 0 for x in outer]
        if 0 in heads or heads[1] != heads[2] or heads[0] % heads[1]:
            raise ValueError(
                "with enable_gqa, key and value have the same number of heads and it divides that of the query, got "
                f"{shapes(query, key, value)}."
            )
        outer = [(*x[:-1], heads[0]) for x in outer]
    if outer[0] == outer[1] == outer[2]:
        return outer[0]  # the usual case, told without the 10 µs of broadcast_shapes
    try:
        return torch.broadcast_shapes(*outer)
    except RuntimeError:
        hint = "" if enable_gqa else " If query heads are meant to share key heads, pass enable_gqa=True."
        raise ValueError(
            f"the axes before length and width (batch, heads) do not agree: {shapes(query, key, value)}.{hint}"
        ) from None


def shapes(query: Tensor, key: Tensor, value: Tensor) -> str:
    """How an error names three inputs."""
    return f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
