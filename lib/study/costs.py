"""What attention costs in its several forms: products, bytes kept for the backward pass, bytes kept while writing. All causal.

The formulas below say what `lib` does to the last byte (the tests count it), so a model need not be run to know its bill.

    form        a query meets                                        to write, a layer keeps of n tokens
    eager       every key, the weights are formed and kept           all n
    torch       every key, by torch's fused kernel                   all n
    tiled       every key, ours; dead tiles are skipped              all n
    windowed    the last w keys                                      the last w
    strided     every s-th key                                       all n
    segmented   its segment of c, one summary of each earlier one    a segment and n/c summaries
    linear      a sum of all, of fixed size                          the sum

Shapes: B sequences, H heads of width d, H_kv heads of key and value, n tokens.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from lib.attention import scaled_dot_product_attention
from lib.efficient import linear_attention, segmented_attention, strided_attention, windowed_attention

FORMS = ("eager", "torch", "tiled", "windowed", "strided", "segmented", "linear")
WINDOW, STRIDE, SEGMENT = 256, 64, 128  # w, s and c, as in benchmarks/lengths.py
CHUNK, TILE = 128, 256  # positions of a chunk of linear attention, queries of a tile

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Model:
    """A stack of Transformer layers: attention, and a feed-forward net four times as wide as the model."""

    layers: int
    d_model: int
    heads: int
    kv_heads: int | None = None  # as many as heads when not given

    @property
    def width(self) -> int:
        """d, of a head."""
        return self.d_model // self.heads


class Bill(NamedTuple):
    """What one pass costs, summed over layers, sequences and heads."""

    flops: int  # multiplications and additions of the products with keys and values, forward
    saved: int  # bytes that attention keeps for the backward pass
    cache: int  # bytes that writing keeps of the tokens so far


class _Shape(NamedTuple):
    heads: int  # B · H
    batch: int
    n: int
    d: int
    b: int  # bytes of a number


def attention(form: str) -> Attend:
    """The causal attention of this form that the formulas speak of."""
    dense = partial(scaled_dot_product_attention, is_causal=True)
    return {
        "eager": partial(dense, backend="eager"),
        "torch": partial(dense, backend="sdpa"),
        "tiled": partial(dense, backend="tiled"),
        "windowed": partial(windowed_attention, window=WINDOW, is_causal=True),
        "strided": partial(strided_attention, stride=STRIDE, is_causal=True),
        "segmented": partial(segmented_attention, segment=SEGMENT, is_causal=True),
        "linear": partial(linear_attention, chunk_size=CHUNK, is_causal=True),
    }[form]


def bill(form: str, model: Model, length: int, *, batch: int = 1, bytes_per_number: int = 2) -> Bill:
    """The costs of all attentions of a model.

    Args:
        form: one of FORMS.
        length: tokens of each sequence, n, a multiple of CHUNK and SEGMENT.
        batch: sequences.
        bytes_per_number: 4 for float32, 2 for bfloat16. Sums stay in float32 whatever it is.

    Returns:
        The bill. The bytes saved are those of a layer with a key head for each query head; the cache counts `kv_heads`.
        Pairs of query and key count where a product forms them, hidden ones included. Torch's kernel, which nothing can
        look into, is taken to skip what ours skips.

    Raises:
        ValueError: an unknown form, or a length that is no such multiple.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}.")
    if length < 1 or length % CHUNK or length % SEGMENT:
        raise ValueError(f"length must be a multiple of {math.lcm(CHUNK, SEGMENT)}, got {length}.")
    shape = _Shape(batch * model.heads, batch, length, model.width, bytes_per_number)
    kv_heads = model.heads if model.kv_heads is None else model.kv_heads
    cache = _state(shape) if form == "linear" else 2 * batch * kv_heads * _kept(form, shape) * shape.d * shape.b
    return Bill(model.layers * _flops(form, shape), model.layers * _saved(form, shape), model.layers * cache)


def rest_flops(model: Model, length: int, *, batch: int = 1) -> int:
    """The products of everything else, forward: four projections and the feed-forward net, two for each weight and token."""
    shared = 1.0 if model.kv_heads is None else model.kv_heads / model.heads
    weights = (2 + 2 * shared + 8) * model.d_model**2
    return round(2 * model.layers * batch * length * weights)


def saved_bytes(attend: Attend, *inputs: Tensor) -> int:
    """Bytes that the graph keeps between forward and backward, the inputs among them, each storage once."""
    storages = {}

    def keep(x: Tensor) -> Tensor:
        storages[x.untyped_storage().data_ptr()] = x.untyped_storage()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        output = attend(*inputs)
        assert output.requires_grad
    return sum(storage.nbytes() for storage in storages.values())


def counted_flops(call: Callable[[], object]) -> int:
    """Multiplications and additions of the matrix products in a call, which it runs. Torch's fused kernel is taken apart."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


class _Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation returns."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        made = [x for x in (result if isinstance(result, tuple | list) else [result]) if isinstance(x, Tensor)]
        self.size = max([self.size, *(x.numel() * x.element_size() for x in made)])
        return result


def largest_tensor(call: Callable[[], object]) -> int:
    """Bytes of the largest tensor that an operation within a call forms; the call is run."""
    with _Largest() as largest:
        call()
    return largest.size


def _blocks(n: int) -> tuple[int, int, int, int]:
    """How `windowed_attention` cuts: number of blocks, their queries, their keys, and the queries left at the end."""
    block = max(WINDOW // 2, 32)
    count = (n - WINDOW + 1) // block
    return (count, block, WINDOW - 1 + block, n - (WINDOW - 1) - count * block) if count >= 2 else (0, 0, 0, 0)


def _window_pairs(n: int) -> tuple[int, int]:
    """Pairs in all calls, and in the masks of these calls, which all blocks share."""
    count, block, span, rest = _blocks(n)
    if not count:
        return n * n, n * n
    ends = (WINDOW - 1) ** 2 + rest * (rest + WINDOW - 1)
    return count * block * span + ends, block * span + ends


def _flops(form: str, s: _Shape) -> int:
    if form == "linear":
        return 2 * s.heads * s.n * (2 * s.d * (s.d + 1) + CHUNK * (2 * s.d + 1))
    rows = [min(TILE, s.n - start) for start in range(0, s.n, TILE)]  # of each row of tiles
    alive = sum(row * stop for row, stop in zip(rows, accumulate(rows), strict=True))
    pairs = {
        "eager": s.n * s.n,
        "torch": alive,
        "tiled": alive,
        "windowed": _window_pairs(s.n)[0],
        "strided": STRIDE * (s.n // STRIDE) ** 2,
        "segmented": s.n * (SEGMENT + s.n // SEGMENT),
    }[form]
    summaries = 6 * s.heads * s.n * s.d if form == "segmented" else 0
    return 4 * s.heads * s.d * pairs + summaries


def _saved(form: str, s: _Shape) -> int:
    four = s.heads * s.n * (4 * s.d * s.b + 4)  # query, key, value and output, and a sum for each row
    if form == "eager":  # float32 whatever the inputs; the weights before and after the empty rows, and the mask
        return s.heads * (8 * s.n**2 + 12 * s.n * s.d) + s.n**2 + s.n
    if form == "tiled":
        return s.heads * s.n * (3 * s.d * s.b + 4 * s.d + 8)
    if form == "windowed":
        count, block, span, _ = _blocks(s.n)
        copies = s.heads * count * (2 * span + block) * s.d * s.b if s.batch > 1 else 0  # one sequence needs none
        return four + copies + s.b * _window_pairs(s.n)[1]
    if form == "segmented":
        count = s.n // SEGMENT
        summaries = s.heads * (4 * count * s.d + 8 * s.n * s.d + 4 * s.n) + 4 * s.batch * s.n * (SEGMENT + count)
        # Each segment holds its own keys and a copy of all summaries.
        return s.heads * (s.n * (2 * s.d * s.b + 4) + 2 * count * (SEGMENT + count) * s.d * s.b) + summaries
    if form == "linear":  # features, values and sums in float32, the products within a chunk, a state for each chunk
        count = s.n // CHUNK
        states = s.heads * (count + (s.heads == 1 or count == 1))  # then the last one is cut off as a view, and stays
        return s.heads * s.n * (4 * (10 * s.d + CHUNK + 4) + 1) + states * 4 * s.d * (s.d + 1)
    return four  # torch; and strided, whose columns are sequences of their own


def _kept(form: str, s: _Shape) -> int:
    """Positions whose key and value a next token may still ask for."""
    return {"windowed": min(WINDOW, s.n), "segmented": SEGMENT + s.n // SEGMENT}.get(form, s.n)


def _state(s: _Shape) -> int:
    return 4 * s.heads * s.d * (s.d + 1)
