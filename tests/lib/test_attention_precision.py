"""How exact attention is: the bounds of float32 and float64, the rule of half precision, extremes, and autocast."""

import math

import pytest
import torch

from lib import masks
from lib.attention import scaled_dot_product_attention as attention
from tests.lib.reference import (
    DTYPES,
    assert_as_good_as,
    assert_close,
    attention_by_loops,
    furthest,
    random_inputs,
    same_dtype_attention,
)

HALF = (torch.bfloat16, torch.float16)
SETTINGS = {
    "plain": ({}, None),
    "causal": ({"is_causal": True}, None),
    "boolean mask": ({}, masks.sliding_window(48, 9)),
    "float mask": ({}, torch.randn(48, 48, generator=torch.Generator().manual_seed(3)).bfloat16()),
    "grouped heads": ({"enable_gqa": True}, masks.padding([48, 20])),
    "values of another width": ({"is_causal": True}, masks.padding([48, 20])),
}
SIZES = {"grouped heads": {"H": 4, "H_kv": 2}, "values of another width": {"d_v": 24}}


@pytest.fixture(params=SETTINGS)
def setting(request, device):
    """(sizes of the inputs, mask, options of the function, options of the references)"""
    options, mask = SETTINGS[request.param]
    sizes = {"L": 48, "d_k": 32} | SIZES.get(request.param, {})
    mask = None if mask is None else mask.to(device)
    return sizes, mask, options, {name: value for name, value in options.items() if name != "enable_gqa"}


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_is_at_most_twice_as_wrong_as_the_careless_form_and_gradients_thrice(dtype, setting, backend, device):
    sizes, mask, options, plain = setting
    inputs = random_inputs(dtype, device, **sizes, grad=True)
    output = attention(*inputs, mask, backend=backend, **options)
    upstream = torch.randn_like(output)
    output.backward(upstream)

    copies = [x.detach().clone().requires_grad_() for x in inputs]
    careless = same_dtype_attention(*copies, mask, **plain)
    careless.backward(upstream)

    exact = attention_by_loops(*inputs, mask, upstream=upstream, **plain)
    assert_as_good_as(output, careless, exact.output, factor=2)
    for ours, copy, gradient in zip(inputs, copies, exact.gradients, strict=True):
        assert_as_good_as(ours.grad, copy.grad, gradient, factor=3)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_the_fused_form_is_at_most_twice_as_wrong_as_ours_that_computes_in_float32(dtype, setting, device):
    sizes, mask, options, plain = setting
    inputs = random_inputs(dtype, device, **sizes)
    exact = attention_by_loops(*inputs, mask, **plain).output
    eager, fused = (attention(*inputs, mask, backend=backend, **options) for backend in ("eager", "sdpa"))
    assert_as_good_as(fused, eager, exact, factor=2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_long_sequences_keep_the_bound_of_their_dtype(dtype, is_causal, backend, device):
    inputs = random_inputs(dtype, device, B=1, H=1, L=300, d_k=64, grad=True)
    output = attention(*inputs, is_causal=is_causal, backend=backend)
    upstream = torch.randn_like(output)
    output.backward(upstream)
    exact = attention_by_loops(*inputs, is_causal=is_causal, upstream=upstream)
    assert_close(output, exact.output)
    for x, gradient in zip(inputs, exact.gradients, strict=True):
        assert_close(x.grad, gradient)


# Numbers of few digits, so that every score is exact and equal scores tie on every path: 15 · 2¹² is close to the largest
# float16, 65504, and its square does not exist there; 2¹²⁰ · 16 is close to the largest float32.
LARGE = {torch.float16: 15 * 2.0**12, torch.bfloat16: 2.0**60, torch.float32: 2.0**60, torch.float64: 2.0**500}


@pytest.mark.parametrize(("dtype", "size"), LARGE.items(), ids=str)
@pytest.mark.parametrize("d_v", [16, 5])
@pytest.mark.parametrize("masked", [False, True])
def test_numbers_near_the_end_of_the_range_give_the_right_value(dtype, size, d_v, masked, backend, device):
    inputs = [x.sign() * size for x in random_inputs(dtype, device, d_k=16, d_v=d_v)]
    mask = masks.causal(5, device=device) if masked else None
    output = attention(*inputs, mask, backend=backend)
    exact = attention_by_loops(*inputs, mask).output
    rounding = {torch.float16: 2**-11, torch.bfloat16: 2**-8}.get(dtype, 1e-6)
    assert furthest(output / size, exact / size) <= rounding


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("largest", [1e2, 1e4])
def test_huge_logits_give_one_hot_weights_and_finite_gradients(dtype, largest, backend, device):
    inputs = [x.detach().requires_grad_() for x in _with_logits(dtype, device, largest)]
    output = attention(*inputs, backend=backend, scale=1.0)
    exact = attention_by_loops(*inputs, scale=1.0)
    assert exact.weights.max(-1).values.min() > 1 - 1e-12
    assert torch.equal(output, exact.output.to(device, dtype))
    output.sum().backward()
    for x, gradient in zip(inputs, exact.gradients, strict=True):
        assert furthest(x.grad, gradient) <= 2e-6 * math.sqrt(largest)  # of float32, for keys of this size


def _with_logits(dtype, device, largest):
    """Queries and keys whose products are ±largest; the one positive is a key of its own for each query."""
    query = torch.eye(4, 8).expand(1, 2, 4, 8) * math.sqrt(largest)
    key = (2 * torch.eye(4, 8) - 1).expand(1, 2, 4, 8) * math.sqrt(largest)
    return [x.to(device, dtype) for x in (query, key, torch.randn(1, 2, 4, 8))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bias", [1e4, -1e4, 6e4, -6e4])
def test_a_large_common_bias_changes_nothing_in_the_dtype_of_the_inputs(dtype, bias, backend, device):
    query, key, value = random_inputs(dtype, device)
    query = torch.zeros_like(query)  # the bias alone decides, so that no digit of a score is lost to it
    mask = torch.full((5, 5), bias, dtype=dtype, device=device)
    mask[:, 2] += 0.0 if dtype in HALF else 1.0
    output = attention(query, key, value, mask, backend=backend)
    expected = attention_by_loops(query, key, value, mask - mask[0, 0]).output
    assert_close(output, expected, {torch.bfloat16: 2**-8, torch.float16: 2**-11}.get(dtype))


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("autocast", [False, True])
def test_on_the_cpu_a_float32_bias_is_not_rounded_to_half_precision(dtype, autocast, backend):
    # 1000 and 1001 are one number in bfloat16, 4000 and 4001 in float16. CUDA's fused kernels cannot read such a mask.
    query, key, value = random_inputs(dtype)
    mask = torch.full((5, 5), 4000.0)
    mask[:, 3] = 4001.0
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        output = attention(torch.zeros_like(query), key, value, mask, backend=backend)
    exact = attention_by_loops(torch.zeros_like(query), key, value, mask).output
    assert_close(output, exact, 2**-8 if dtype is torch.bfloat16 else 2**-10)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_float64_bias_beyond_the_range_of_float32_hides_a_whole_row_on_every_backend(dtype, backend, device):
    inputs = random_inputs(dtype, device, grad=True)
    mask = torch.zeros(5, 5, dtype=torch.float64, device=device)
    mask[1] = torch.finfo(torch.float64).min
    output = attention(*inputs, mask, backend=backend)
    output.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in inputs)
    if dtype is torch.float64:
        assert_close(output[:, :, 1], inputs[2].mean(2))  # a number like any other there: see the note in the docstring
    else:
        assert not output[:, :, 1].any()


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("mask_dtype", [None, torch.bool, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_autocast_takes_any_mask_and_gives_what_casting_by_hand_gives(dtype, mask_dtype, is_causal, backend, device):
    # https://github.com/pytorch/pytorch/issues/99012, https://github.com/pytorch/pytorch/issues/111276
    inputs = random_inputs(torch.float32, device, grad=True)
    mask = None if mask_dtype is None else masks.padding([5, 3], device=device)
    if mask is not None and mask_dtype is not torch.bool:
        mask = torch.zeros(mask.shape, dtype=mask_dtype, device=device).masked_fill(~mask, -math.inf)
    with torch.autocast(device, dtype=dtype):
        output = attention(*inputs, mask, is_causal=is_causal, backend=backend)
        weighted, weights = attention(*inputs, mask, is_causal=is_causal, need_weights=True)
    assert output.dtype == weighted.dtype == weights.dtype == dtype
    by_hand = [x.detach().to(dtype).requires_grad_() for x in inputs]
    expected = attention(*by_hand, mask, is_causal=is_causal, backend=backend)
    assert torch.equal(output, expected)

    upstream = torch.randn_like(output)
    output.backward(upstream)
    expected.backward(upstream)
    for x, copy in zip(inputs, by_hand, strict=True):
        assert x.grad.dtype == torch.float32
        assert torch.equal(x.grad, copy.grad.float())


def test_autocast_leaves_float64_alone(backend, device):
    inputs = random_inputs(torch.float64, device)
    with torch.autocast(device, dtype=torch.bfloat16):
        output = attention(*inputs, backend=backend)
    assert torch.equal(output, attention(*inputs, backend=backend))
