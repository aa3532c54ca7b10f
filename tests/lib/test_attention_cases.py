"""Faults reported against attention that everyone uses: the small input, and the whole kind it belongs to.

Each test names the reports. What belongs to modules built on top (caches, layers, whole models) is tested here as far as the
attention function can prevent it.
"""

import math

import pytest
import torch
from torch.autograd import gradcheck

from lib import masks
from lib.attention import scaled_dot_product_attention as attention
from tests.lib.reference import (
    DTYPES,
    assert_accurate,
    assert_as_good_as,
    assert_close,
    attention_by_loops,
    random_inputs,
    same_dtype_attention,
)


def as_float(mask, dtype=torch.float32):
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -math.inf)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["boolean", "float"])
@pytest.mark.parametrize("d_v", [8, 5])  # torch's fused kernel, and its plain path
@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_a_row_without_a_key_is_zero_and_its_gradients_finite(dtype, kind, d_v, dropout_p, backend, gradient_mode, device):
    # https://github.com/pytorch/pytorch/issues/103749, https://github.com/pytorch/pytorch/issues/103963
    # https://github.com/pytorch/pytorch/issues/152028 (with dropout)
    inputs = random_inputs(dtype, device, B=1, H=1, L=4, d_v=d_v, grad=gradient_mode is torch.enable_grad)
    mask = torch.ones(4, 4, dtype=torch.bool, device=device)
    mask[1] = False
    mask = mask if kind == "boolean" else as_float(mask)
    with gradient_mode():
        output = attention(*inputs, mask, dropout_p, backend=backend)
    assert not output[:, :, 1].any()
    assert torch.isfinite(output).all()
    if dropout_p == 0:
        assert_accurate(output, inputs, mask)
    if gradient_mode is torch.enable_grad:
        output.sum().backward()
        assert all(torch.isfinite(x.grad).all() for x in inputs)
        assert not inputs[0].grad[:, :, 1].any(), "the query of that row has nothing to learn"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sequence_of_nothing_but_padding_is_zero_and_the_others_do_not_notice(dtype, backend, gradient_mode, device):
    # https://github.com/pytorch/pytorch/issues/41508, https://github.com/pytorch/pytorch/issues/27968
    # https://github.com/pytorch/pytorch/issues/42323; valid length 0: https://github.com/d2l-ai/d2l-en/issues/2423
    inputs = random_inputs(dtype, device, grad=gradient_mode is torch.enable_grad)
    mask = masks.padding([5, 0], device=device)
    with gradient_mode():
        output = attention(*inputs, mask, backend=backend)
        with_weights, weights = attention(*inputs, mask, need_weights=True)
    for result in (output, with_weights, weights):
        assert not result[1].any()
        assert torch.isfinite(result).all()
    assert_accurate(output, inputs, mask)
    if gradient_mode is torch.enable_grad:
        (output.sum() + with_weights.sum() + weights[..., 0].sum()).backward()
        assert all(torch.isfinite(x.grad).all() and not x.grad[1].any() for x in inputs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["boolean", "float"])
@pytest.mark.parametrize("d_v", [8, 5])
def test_finite_rubbish_at_hidden_positions_moves_nothing(dtype, kind, d_v, backend, device):
    # https://github.com/pytorch/pytorch/issues/101967
    query, key, value = random_inputs(dtype, device, L=6, d_v=d_v)
    mask = masks.padding([6, 3], device=device)
    mask = mask if kind == "boolean" else as_float(mask)
    results = []
    for rubbish in (0.0, 1e10 if dtype is not torch.float16 else 6e4):
        inputs = [query.clone(), key.clone(), value.clone()]
        inputs[1][1, :, 3:], inputs[2][1, :, 3:] = rubbish, -rubbish
        leaves = [x.requires_grad_() for x in inputs]
        output = attention(*leaves, mask, backend=backend)
        output.sum().backward()
        results.append((output, *(x.grad for x in leaves)))
    assert all(torch.equal(clean, dirty) for clean, dirty in zip(*results, strict=True))
    assert not results[0][2][1, :, 3:].any(), "no gradient for a hidden key"
    assert not results[0][3][1, :, 3:].any(), "no gradient for a hidden value"


def test_nan_in_a_hidden_value_spoils_the_output_as_the_docstring_says(backend, device):
    # https://github.com/pytorch/pytorch/issues/101967
    query, key, value = random_inputs(torch.float32, device)
    value[:, :, 4] = math.nan
    assert attention(query, key, value, masks.padding([4, 4], 5, device=device), backend=backend).isnan().all()
    assert "NaN" in attention.__doc__


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pattern", ["window", "window and causal", "blocks from the end"])
def test_whole_tiles_without_a_key_before_a_live_one_do_no_harm(dtype, pattern, backend, device):
    # https://github.com/pytorch/pytorch/issues/127055
    n = 640
    inputs = random_inputs(dtype, device, B=1, H=1, L=n, d_k=16, grad=True)
    mask = {
        "window": masks.sliding_window(n, 21, causal=False),
        "window and causal": masks.sliding_window(n, 20),
        "blocks from the end": masks.blocks(n, 64).flip(0),
    }[pattern].to(device)
    output = attention(*inputs, mask, is_causal="causal" in pattern, backend=backend)
    assert_accurate(output, inputs, mask)
    output.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in inputs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_of_the_smallest_number_is_a_row_of_numbers(dtype, backend, device):
    # https://github.com/pytorch/pytorch/issues/109517, https://github.com/pytorch/pytorch/issues/110213
    # A user's own finite constant hides nothing where it fills the row: the scores drown in it and every value counts the
    # same, but for float16, whose smallest number, −65504, leaves the scores a few digits. The docstring warns of it.
    query, key, value = random_inputs(dtype, device)
    mask = torch.zeros(5, 5, dtype=dtype, device=device)
    mask[1] = torch.finfo(dtype).min
    _, weights = attention(query, key, torch.ones_like(value), mask, need_weights=True)
    assert (weights[:, :, 1] > 0).all()
    output = attention(query, key, value, mask, backend=backend)
    if dtype is not torch.float16:
        assert_close(output[:, :, 1], value.double().mean(2), {torch.bfloat16: 2**-8}.get(dtype))
    assert "finite" in attention.__doc__


def test_the_librarys_own_masks_hide_with_minus_infinity_never_with_a_large_number(device):
    # https://github.com/pytorch/pytorch/issues/109517
    joined = masks.combine(masks.causal(5, device=device), torch.zeros(5, 5, device=device))
    assert set(joined.flatten().tolist()) == {0.0, -math.inf}
    inputs = random_inputs(torch.float32, device)
    inputs[0].mul_(100)
    _, weights = attention(*inputs, masks.causal(5, device=device), need_weights=True)
    assert not weights.triu(1).any()


def test_causal_with_one_query_sees_key_0_alone_as_in_torch_and_all_keys_with_our_mask(backend, device):
    # https://github.com/pytorch/pytorch/issues/103082, https://github.com/pytorch/pytorch/issues/108108
    query, key, value = random_inputs(torch.float64, device, B=1, H=1, L=1, S=5)
    assert_close(attention(query, key, value, is_causal=True, backend=backend), value[:, :, :1])
    mask = masks.causal(1, 5, device=device)
    assert mask.all()
    assert_close(attention(query, key, value, mask, backend=backend), attention(query, key, value, backend=backend))


@pytest.mark.parametrize("pieces", [[1] * 7, [3, 4], [1, 2, 4], [6, 1], [7]], ids=str)
@pytest.mark.parametrize("window", [None, 3])
def test_growing_pieces_with_the_past_kept_equal_the_full_pass(pieces, window, backend, device):
    # https://github.com/pytorch/pytorch/issues/103082, https://github.com/pytorch/pytorch/issues/108108
    query, key, value = random_inputs(torch.float64, device, L=7)

    def mask(L, S):
        built = masks.causal(L, S) if window is None else masks.sliding_window(L, window, S=S)
        return built.to(device)

    outputs, end = [], 0
    for piece in pieces:
        start, end = end, end + piece
        step = query[:, :, start:end], key[:, :, :end], value[:, :, :end]
        outputs.append(attention(*step, mask(piece, end), backend=backend))
    assert_close(torch.cat(outputs, dim=2), attention(query, key, value, mask(7, 7), backend=backend))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["boolean", "float", "float with a bias"])
def test_a_mask_and_is_causal_both_hold(dtype, kind, backend, gradient_mode, device):
    # https://github.com/pytorch/pytorch/issues/187801, https://github.com/pytorch/pytorch/issues/118972
    # https://github.com/pytorch/pytorch/issues/92554 (a causal mask beside a float padding bias)
    inputs = random_inputs(dtype, device, S=7)
    mask = masks.padding([7, 2], device=device)
    if kind != "boolean":
        mask = as_float(mask) + (torch.linspace(-1, 1, 7, device=device) if "bias" in kind else 0.0)
    with gradient_mode():
        output = attention(*inputs, mask, is_causal=True, backend=backend)
        joined = attention(*inputs, masks.combine(masks.causal(5, 7, offset=0, device=device), mask), backend=backend)
        _, weights = attention(*inputs, mask, is_causal=True, need_weights=True)
    assert_accurate(output, inputs, mask, is_causal=True)
    assert torch.equal(output, joined)
    assert not weights.triu(1).any()
    assert not weights[1, :, :, 2:].any()
    assert (weights[1, :, 1:, :2] > 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_weights_of_causal_attention_are_lower_triangular(dtype, masked, gradient_mode, device):
    # https://github.com/pytorch/pytorch/issues/99282, https://github.com/pytorch/pytorch/issues/172338
    inputs = random_inputs(dtype, device)
    mask = torch.ones(5, 5, dtype=torch.bool, device=device) if masked else None
    with gradient_mode():
        _, weights = attention(*inputs, mask, is_causal=True, need_weights=True)
    assert not weights.triu(1).any()
    assert (weights[..., *torch.tril_indices(5, 5)] > 0).all()


@pytest.mark.parametrize("kind", ["(L, S)", "(1, H, L, S)", "(B, 1, 1, S)"])
@pytest.mark.parametrize("others_learn", [False, True])
def test_a_float_bias_learns_alone_or_with_the_others(kind, others_learn, backend, device):
    # https://github.com/pytorch/pytorch/issues/148476
    inputs = random_inputs(torch.float64, device, L=3, S=4, d_k=3, grad=others_learn)
    shape = {"(L, S)": (3, 4), "(1, H, L, S)": (1, 2, 3, 4), "(B, 1, 1, S)": (2, 1, 1, 4)}[kind]
    bias = torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
    for is_causal in (False, True):
        assert gradcheck(lambda b, c=is_causal: attention(*inputs, b, is_causal=c, backend=backend), bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_gradient_of_a_bias_is_right_in_every_dtype(dtype, backend, device):
    # https://github.com/pytorch/pytorch/issues/148476
    inputs = random_inputs(dtype, device)
    bias, copy = (torch.randn(5, 5, dtype=dtype, device=device).requires_grad_() for _ in range(2))
    copy.data.copy_(bias.data)
    attention(*inputs, bias, backend=backend).sum().backward()
    same_dtype_attention(*inputs, copy).sum().backward()
    exact = attention_by_loops(*inputs, bias).mask_gradient.sum((0, 1))
    if dtype is torch.float32:
        assert_close(bias.grad, exact)
    else:
        assert_as_good_as(bias.grad, copy.grad, exact, factor=3)


@pytest.mark.parametrize("L", [704, 70])
def test_scores_far_below_zero_give_finite_bfloat16_gradients_beside_a_mask(L, backend, device):
    # https://github.com/pytorch/pytorch/issues/196678: on H100 and H200, cuDNN's kernel gives NaN where the log-sum-exp of a
    # row is below −88.7, the logarithm of the smallest float32. Our CUDA path does not take that kernel beside a mask.
    query, key, value = random_inputs(torch.bfloat16, device, B=1, H=1, L=L, d_k=64)
    query[:, :, 3], key = 4.0, key.abs() * -8  # row 3: scores of about −200
    inputs = [x.detach().requires_grad_() for x in (query, key, value)]
    copies = [x.detach().clone().requires_grad_() for x in inputs]
    mask = masks.causal(L, device=device)
    assert torch.logsumexp((query.double() @ key.double().mT / 8).masked_fill(~mask, -math.inf), -1).min() < -88.7

    output, careless = attention(*inputs, mask, backend=backend), same_dtype_attention(*copies, mask)
    output.sum().backward()
    careless.sum().backward()
    exact = attention_by_loops(*inputs, mask)
    assert_as_good_as(output, careless, exact.output, factor=2)
    for x, copy, gradient in zip(inputs, copies, exact.gradients, strict=True):
        assert torch.isfinite(x.grad).all()
        assert_as_good_as(x.grad, copy.grad, gradient, factor=3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("L", "S"), [(5, 2), (6, 1), (3, 0), (4, 4), (2, 5)])
def test_causal_from_the_lower_right_leaves_the_first_rows_empty_and_gradients_finite(dtype, L, S, backend, device):
    # https://github.com/Dao-AILab/flash-attention/issues/1778, https://github.com/Dao-AILab/flash-attention/issues/443
    # https://github.com/Dao-AILab/flash-attention/issues/20
    inputs = random_inputs(dtype, device, L=L, S=S, grad=True)
    mask = masks.causal(L, S, device=device)
    output = attention(*inputs, mask, backend=backend)
    output.sum().backward()
    first = max(L - S, 0)
    assert not output[:, :, :first].any()
    assert output[:, :, first:].all()
    assert_accurate(output, inputs, mask)
    assert all(torch.isfinite(x.grad).all() for x in inputs)


def test_window_of_3_over_6_positions_gives_query_5_the_keys_3_4_5(device):
    # https://github.com/Dao-AILab/flash-attention/issues/1133, https://github.com/huggingface/transformers/issues/39408
    # https://github.com/huggingface/transformers/issues/29623, https://github.com/vllm-project/vllm/issues/3385
    inputs = random_inputs(torch.float64, device, L=6)
    _, weights = attention(*inputs, masks.sliding_window(6, 3, device=device), need_weights=True)
    seen = [row.nonzero().flatten().tolist() for row in weights[0, 0]]
    assert seen == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("how", ["mask", "float mask", "is_causal", "both"])
def test_the_future_moves_nothing_and_receives_no_gradient(dtype, how, backend, gradient_mode, device):
    # https://github.com/rasbt/LLMs-from-scratch/issues/1062: an upper-triangular mask, True = ignore, given to torch's
    # function showed every position the future alone; the tests looked at shapes.
    causal = masks.causal(6, device=device)
    mask = {"mask": causal, "float mask": as_float(causal), "is_causal": None, "both": causal}[how]
    options = {"is_causal": how in ("is_causal", "both"), "backend": backend}
    query, key, value = random_inputs(dtype, device, L=6)
    other_key, other_value = key.clone(), value.clone()
    other_key[:, :, 4:], other_value[:, :, 4:] = 50.0, -50.0
    with gradient_mode():
        before = attention(query, key, value, mask, **options)
        after = attention(query, other_key, other_value, mask, **options)
    assert torch.equal(before[:, :, :4], after[:, :, :4])
    assert not torch.equal(before[:, :, 4:], after[:, :, 4:]), "the present does count"

    if gradient_mode is torch.enable_grad:
        leaves = [x.requires_grad_() for x in (query, key, value)]
        attention(*leaves, mask, **options)[:, :, 3].sum().backward()
        assert not key.grad[:, :, 4:].any()
        assert not value.grad[:, :, 4:].any()
        assert value.grad[:, :, :4].all()
