"""Efficient attention beside attention over all keys: what its tests share."""

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

from lib import masks
from lib.attention import scaled_dot_product_attention
from tests.lib.reference import assert_close


def dense(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """All (L, S) scores under a mask."""
    shared = query.size(1) != key.size(1)
    return scaled_dot_product_attention(query, key, value, mask, enable_gqa=shared, backend="eager")


@st.composite
def sequences(draw, shortest: int = 0, longest: int = 150, kinds: tuple[str, ...] = ("none", "boolean", "float")):
    """(inputs, mask of keys): float64 inputs of any length, heads shared or not, a mask of each kind with empty rows."""
    B, H_kv, L = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(shortest, longest))
    H = H_kv * draw(st.integers(1, 2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shapes = (B, H, L, 3), (B, H_kv, L, 3), (B, H_kv, L, 2)
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    kind = draw(st.sampled_from(kinds))
    if kind == "none":
        return inputs, None
    heads = H if "float" in kinds else 1
    shape = draw(st.sampled_from([(1, L), (B, 1, 1, L), (1, heads, 1, L), (B, heads, 1, L)]))
    allowed = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.1, 0.7, 1.0]))
    if kind == "boolean":
        return inputs, allowed
    return inputs, torch.randn(shape, generator=generator, dtype=torch.float64).masked_fill(~allowed, -math.inf)


def on(device: str, case: tuple) -> tuple:
    """The same case on a device."""
    inputs, mask = case
    return [x.to(device) for x in inputs], None if mask is None else mask.to(device)


def with_gradients(attend, inputs) -> list[Tensor]:
    """The output and the gradients of the inputs, for a fixed random gradient of the output."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    output = attend(*inputs)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return [output, *torch.autograd.grad(output, inputs, upstream.to(output))]


def assert_same(attend, expected, inputs, bound: float | None = None) -> None:
    """Two implementations agree on these inputs, output and gradients."""
    for own, other in zip(with_gradients(attend, inputs), with_gradients(expected, inputs), strict=True):
        assert_close(own, other, bound)


def links(attend, L: int, heads: int = 1) -> Tensor:
    """(L, L) boolean: whose key or value has any influence, to the last bit, on whose output."""
    inputs = [torch.randn(1, heads, L, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    output = attend(*inputs)
    rows = []
    for i in range(L):
        gradients = torch.autograd.grad(output[:, :, i].sum(), inputs[1:], retain_graph=True)
        rows.append(sum(gradient.abs().sum(dim=(0, 1, 3)) for gradient in gradients) != 0)
    return torch.stack(rows)


def saved_bytes(attend, L: int) -> int:
    """Bytes that the graph keeps for the backward pass, each storage once."""
    storages = {}

    def keep(x: Tensor) -> Tensor:
        storages[x.untyped_storage().data_ptr()] = x.untyped_storage()
        return x

    inputs = [torch.randn(1, 2, L, 8, requires_grad=True) for _ in range(3)]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        output = attend(*inputs)
        assert output.requires_grad
    return sum(storage.nbytes() for storage in storages.values())


def assert_padding_does_not_show(attend) -> None:
    """Neither the content of the padding nor its amount changes the output of the tokens before it, or any gradient there.

    Args:
        attend: called with query, key, value and a mask of keys.
    """
    inputs = [torch.randn(2, 2, 70, 3, dtype=torch.float64) for _ in range(3)]
    lengths = torch.tensor([70, 41])
    plain = with_gradients(lambda *x: attend(*x, masks.padding(lengths, 70)), inputs)
    rubbish = [x.clone() for x in inputs]
    for x in rubbish:
        x[1, :, 41:] = 1e6
    longer = [torch.cat([x, torch.full((2, 2, 27, 3), -50.0, dtype=torch.float64)], dim=2) for x in rubbish]
    for padded, L in ((rubbish, 70), (longer, 97)):
        changed = with_gradients(lambda *x, L=L: attend(*x, masks.padding(lengths, L))[:, :, :70], padded)
        assert_close(changed[0][0], plain[0][0])
        assert_close(changed[0][1, :, :41], plain[0][1, :, :41])
        for gradient in changed[2:]:
            assert not gradient[1, :, 41:].any(), "a gradient reaches the padding"
    alone = attend(*(x[1:, :, :41] for x in inputs), None)
    assert_close(plain[0][1:, :, :41], alone)
