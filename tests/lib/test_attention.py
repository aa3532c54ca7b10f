"""The attention function gives the numbers of its equation: forward, backward, for every shape, and without side effects."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from lib import masks
from lib.attention import scaled_dot_product_attention as attention
from tests.lib.reference import (
    DTYPES,
    assert_accurate,
    assert_close,
    attention_by_loops,
    random_inputs,
)

# One configuration for each way through the function. `mask` is built when the test runs, on its device.
NO_KEY_FOR_ROW_1 = torch.ones(5, 7, dtype=torch.bool).index_fill(0, torch.tensor(1), False)
CONFIGURATIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "boolean mask": {"mask": torch.rand(2, 2, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.6},
    "float mask": {"mask": torch.randn(2, 1, 5, 7, generator=torch.Generator().manual_seed(2))},
    "mask and causal": {"mask": masks.padding([7, 3]), "is_causal": True},
    "float mask and causal": {"mask": torch.linspace(-2, 2, 35).reshape(5, 7), "is_causal": True},
    "a row without a key": {"mask": NO_KEY_FOR_ROW_1},
    "a float row of minus infinity": {"mask": torch.zeros(5, 7).masked_fill(~NO_KEY_FOR_ROW_1, -math.inf)},
    "more queries than keys": {"mask": masks.causal(5, 2), "S": 2},
    "grouped heads": {"H": 6, "H_kv": 2},
    "grouped heads, causal": {"H": 4, "H_kv": 1, "is_causal": True},
    "values of another width": {"d_v": 3},
    "values of another width, masked": {"d_v": 3, "mask": NO_KEY_FOR_ROW_1},
    "scale": {"scale": 0.7},
    "scale zero": {"scale": 0.0},
    "negative scale": {"scale": -0.3},
    "one query": {"L": 1, "is_causal": True},
    "one key": {"S": 1, "is_causal": True},
    "width one": {"d_k": 1},
}


@pytest.fixture(params=CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def configuration(request) -> tuple[dict, dict, torch.Tensor | None]:
    """(sizes of the inputs, options of the function, mask)"""
    options = dict(request.param)
    mask = options.pop("mask", None)
    sizes = {"L": 5, "S": 7} | {name: options.pop(name) for name in ("H", "H_kv", "L", "S", "d_k", "d_v") if name in options}
    return sizes, options, mask


def attend(inputs, mask=None, **options):
    """The function, with heads shared where the inputs call for it, and the mask on their device."""
    mask = None if mask is None else mask.to(inputs[0].device)
    return attention(*inputs, mask, enable_gqa=inputs[0].size(1) != inputs[1].size(1), **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_output_is_that_of_the_loops_in_every_gradient_mode(dtype, backend, gradient_mode, device, configuration):
    sizes, options, mask = configuration
    inputs = random_inputs(dtype, device, **sizes, grad=gradient_mode is torch.enable_grad)
    with gradient_mode():
        output = attend(inputs, mask, backend=backend, **options)
    assert output.dtype == dtype
    assert_accurate(output, inputs, mask, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_gradients_are_those_of_the_loops(dtype, backend, device, configuration):
    sizes, options, mask = configuration
    inputs = random_inputs(dtype, device, **sizes, grad=True)
    output = attend(inputs, mask, backend=backend, **options)
    upstream = torch.randn_like(output)
    output.backward(upstream)
    exact = attention_by_loops(*inputs, mask, **options, upstream=upstream)
    for x, gradient in zip(inputs, exact.gradients, strict=True):
        assert_close(x.grad, gradient)


def test_gradients_pass_the_numerical_check(backend, device, configuration):
    sizes, options, mask = configuration
    inputs = random_inputs(torch.float64, device, **(sizes | {"d_k": min(sizes.get("d_k", 3), 3), "B": 2}), grad=True)
    if mask is not None and mask.is_floating_point():
        mask = mask.to(device, torch.float64).requires_grad_()
    assert gradcheck(lambda q, k, v, m: attend([q, k, v], m, backend=backend, **options), (*inputs, mask))


def test_gradients_of_the_weights_pass_the_numerical_check(device, configuration):
    sizes, options, mask = configuration
    inputs = random_inputs(torch.float64, device, **(sizes | {"d_k": min(sizes.get("d_k", 3), 3)}), grad=True)
    assert gradcheck(lambda q, k, v: attend([q, k, v], mask, need_weights=True, **options), inputs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_are_those_of_the_loops(dtype, device, configuration):
    sizes, options, mask = configuration
    inputs = random_inputs(dtype, device, **sizes)
    output, weights = attend(inputs, mask, need_weights=True, **options)
    assert output.dtype == weights.dtype == dtype
    exact = attention_by_loops(*inputs, mask, **options)
    # Half precision: softmax in float32, then rounded once, so the error is that of rounding a number up to 1.
    assert_close(weights, exact.weights, {torch.bfloat16: 2**-8, torch.float16: 2**-11}.get(dtype))
    assert not weights.cpu()[exact.weights == 0].any()


def test_auto_is_the_fused_function_until_the_weights_are_asked_for(device):
    inputs = random_inputs(torch.float32, device)
    mask = masks.causal(5, device=device)
    assert torch.equal(attention(*inputs, mask), attention(*inputs, mask, backend="sdpa"))
    output, weights = attention(*inputs, mask, need_weights=True)
    assert torch.equal(output, attention(*inputs, mask, backend="eager"))
    assert_close(weights @ inputs[2], output)


@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 3, 2, 5, 8)], ids=str)
def test_any_number_of_leading_axes_will_do(shape, backend, device):
    inputs = [torch.randn(shape, dtype=torch.float64, device=device) for _ in range(3)]
    flat = [x.reshape(-1, 1, 5, 8) for x in inputs]
    for mask in (None, masks.causal(5, device=device)):
        expected = attention_by_loops(*flat, mask).output.reshape(shape)
        assert_close(attention(*inputs, mask, backend=backend), expected)


def test_leading_axes_of_one_stand_for_every_sequence_and_head(backend, device):
    query, key, value = (torch.randn(*lead, 5, 8, dtype=torch.float64, device=device) for lead in [(2, 1), (1, 3), (1, 3)])
    mask = torch.rand(2, 3, 5, 5, device=device) < 0.7
    expected = attention_by_loops(*(x.expand(2, 3, 5, 8) for x in (query, key, value)), mask).output
    assert_close(attention(query, key, value, mask, backend=backend), expected)


@pytest.mark.parametrize("mask_shape", [(5, 7), (1, 7), (1, 1, 1, 7), (2, 1, 1, 7), (1, 3, 5, 7), (2, 3, 1, 7)], ids=str)
@pytest.mark.parametrize("kind", ["boolean", "float"])
def test_a_mask_axis_of_one_stands_for_all(mask_shape, kind, backend, device):
    inputs = random_inputs(torch.float64, device, B=2, H=3, L=5, S=7)
    mask = torch.randn(mask_shape, device=device)
    mask = mask > -0.5 if kind == "boolean" else mask
    assert_accurate(attention(*inputs, mask, backend=backend), inputs, mask)


LAYOUTS = {
    "heads split from the width": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "transposed storage": lambda x: x.mT.contiguous().mT,
    "every second number": lambda x: torch.stack([x, torch.full_like(x, math.nan)], dim=-1).flatten(-2)[..., ::2],
    "a slice of a larger tensor": lambda x: torch.cat([torch.full_like(x, math.nan), x], dim=2)[:, :, x.size(2) :],
    "one sequence expanded": lambda x: x[:1].expand_as(x),
    "one row expanded": lambda x: x[:, :, :1].expand_as(x),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_the_layout_in_memory_does_not_matter(layout, dtype, backend, device):
    leaves = random_inputs(dtype, device, L=6, S=6, grad=True)
    inputs = [layout(x) for x in leaves]
    mask = layout(torch.randn(2, 2, 6, 6, device=device)) > -0.5
    output = attention(*inputs, mask, backend=backend)
    assert_accurate(output, [x.contiguous() for x in inputs], mask)
    output.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in leaves)


EMPTY = {"no sequence": "B", "no query": "L", "no key": "S", "no width to match": "d_k", "no width of value": "d_v"}


@pytest.mark.parametrize("axis", EMPTY.values(), ids=EMPTY)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"masked": True}, {"masked": True, "is_causal": True}], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_axis_of_length_0_gives_the_empty_or_the_zero_result(axis, options, dtype, backend, device):
    sizes = {"B": 2, "L": 3, "S": 4, "d_k": 8, "d_v": 8} | {axis: 0}
    inputs = random_inputs(dtype, device, **sizes, grad=True)
    mask = torch.ones(sizes["L"], sizes["S"], dtype=torch.bool, device=device) if options.get("masked") else None
    is_causal = options.get("is_causal", False)
    output = attention(*inputs, mask, is_causal=is_causal, backend=backend)
    assert output.shape == (sizes["B"], 2, sizes["L"], sizes["d_v"])
    if axis == "d_k":  # vectors of no width match equally: the mean of the values that are allowed
        expected = inputs[2].double().cumsum(2)[:, :, :3] / torch.arange(1, 4, device=device)[:, None]
        expected = expected if is_causal else inputs[2].double().mean(2, keepdim=True).expand(output.shape)
        assert_close(output, expected, {torch.bfloat16: 2**-8, torch.float16: 2**-11}.get(dtype))
    else:
        assert not output.any()
    output.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in inputs)
    _, weights = attention(*inputs, mask, is_causal=is_causal, need_weights=True)
    assert weights.shape == (sizes["B"], 2, sizes["L"], sizes["S"])


@pytest.mark.parametrize("need_weights", [False, True])
def test_inputs_are_never_modified(need_weights, backend, device, configuration):
    sizes, options, mask = configuration
    inputs = random_inputs(torch.float32, device, **sizes, grad=True)
    tensors = [*inputs] if mask is None else [*inputs, mask.to(device, copy=True)]
    before = [x.detach().clone() for x in tensors]
    versions = [x._version for x in tensors]
    chosen = {"need_weights": True} if need_weights else {"backend": backend}
    output = attend(inputs, None if mask is None else tensors[3], dropout_p=0.2, **chosen, **options)
    (output[0] if need_weights else output).sum().backward()
    assert [x._version for x in tensors] == versions
    assert all(torch.equal(x.detach(), copy) for x, copy in zip(tensors, before, strict=True))


def test_sequences_of_a_batch_do_not_touch_each_other(backend, device):
    inputs = random_inputs(torch.float64, device, B=3)
    alone = [attention(*(x[b : b + 1] for x in inputs), backend=backend) for b in range(3)]
    assert_close(attention(*inputs, backend=backend), torch.cat(alone))
