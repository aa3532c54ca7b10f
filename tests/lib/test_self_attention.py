"""`SelfAttention`: three projections of one sequence and the attention between them, the same in every mode."""

import math

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from lib import masks
from lib.attention import SelfAttention
from lib.attention import scaled_dot_product_attention as attention
from tests.lib.reference import DTYPES, assert_close, attention_by_loops


@pytest.fixture
def module(device) -> SelfAttention:
    return SelfAttention(6, 4, 5).to(device, torch.float64)


def sequences(device, B=2, L=5, dtype=torch.float64):
    return torch.randn(B, L, 6, dtype=dtype, device=device)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_output_and_weights_are_those_of_the_equation(bias, masked, device):
    module = SelfAttention(6, 4, 5, bias=bias).to(device, torch.float64)
    x = sequences(device)
    mask = masks.combine(masks.causal(5, device=device), masks.padding([5, 2], device=device)) if masked else None
    output, weights = module(x, mask)
    assert output.shape == (2, 5, 5)
    assert weights.shape == (2, 5, 5)
    maps = module.q_proj, module.k_proj, module.v_proj
    inputs = [(x @ m.weight.mT + (m.bias if bias else 0))[:, None] for m in maps]
    exact = attention_by_loops(*inputs, mask)
    assert_close(output, exact.output[:, 0])
    assert_close(weights, exact.weights[:, 0])


@pytest.mark.parametrize("masked", [False, True])
def test_same_as_torchs_module_of_one_head_with_the_same_weights(masked, device):
    ours = SelfAttention(6, 6, 6).to(device, torch.float64)
    theirs = nn.MultiheadAttention(6, 1, bias=False, batch_first=True).to(device, torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]))
        theirs.out_proj.weight.copy_(torch.eye(6))
    x = sequences(device)
    mask = masks.causal(5, device=device) if masked else None
    output, weights = ours(x, mask)
    expected, expected_weights = theirs(x, x, x, attn_mask=~mask if masked else None)  # there True = ignore
    assert_close(output, expected)
    assert_close(weights, expected_weights)


MASKS = {
    "none": lambda: None,
    "causal": lambda: masks.causal(5),
    "padding": lambda: masks.padding([5, 2]),
    "a sequence of nothing but padding": lambda: masks.padding([5, 0]),
    "float": lambda: torch.randn(5, 5),
    "float with a row of minus infinity": lambda: torch.randn(5, 5).index_fill(0, torch.tensor(0), -math.inf),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_training_evaluation_and_every_gradient_mode_give_the_same_bits(mask, dtype, training, gradient_mode, device):
    # https://github.com/pytorch/pytorch/issues/96941 (causality lost in eval), https://github.com/pytorch/pytorch/issues/86120,
    # https://github.com/pytorch/pytorch/issues/97111, https://github.com/pytorch/pytorch/issues/128209 (padded rows change in
    # eval, or are cut off), https://github.com/pytorch/pytorch/issues/41508 (NaN in eval)
    module, x, mask = SelfAttention(6, 4, 5).to(device, dtype), sequences(device, dtype=dtype), mask()
    mask = None if mask is None else mask.to(device)
    expected = module.train()(x, mask)
    module.train(training)
    with gradient_mode():
        result = module(x, mask)
    for one, other in zip(result, expected, strict=True):
        assert torch.equal(one, other)
        assert torch.isfinite(one).all()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_the_future_moves_nothing_in_training_and_in_evaluation(training, gradient_mode, module, device):
    # https://github.com/shiyu-coder/Kronos/issues/199: causal only where `self.training`, so evaluation sees the future.
    # https://github.com/rasbt/LLMs-from-scratch/issues/1062: a mask of the wrong polarity.
    x = sequences(device)
    changed = x.clone()
    changed[:, 3:] = 100.0
    module.train(training)
    mask = masks.causal(5, device=device)
    with gradient_mode():
        (before, weights), (after, _) = module(x, mask), module(changed, mask)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])
    assert not weights.triu(1).any()


def test_padding_changes_nothing_whatever_it_holds_and_however_long_it_is(module, device):
    x = sequences(device, B=1, L=3)
    alone, weights = module(x)
    for length in (3, 4, 9):
        for content in (0.0, 1e6):
            padded = torch.full((1, length, 6), content, dtype=x.dtype, device=device)
            padded[:, :3] = x
            output, wide = module(padded, masks.padding([3], length, device=device))
            assert_close(output[:, :3], alone)
            assert_close(wide[:, :3, :3], weights)
            assert not wide[:, :, 3:].any()


def test_a_sequence_of_nothing_but_padding_trains_the_others_alone(device):
    module = SelfAttention(6, 4, 5, bias=True).to(device)
    x = sequences(device, dtype=torch.float32).requires_grad_()
    output, weights = module(x, masks.padding([5, 0], device=device))
    assert not output[1].any()
    assert not weights[1].any()
    output.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert not x.grad[1].any()
    assert all(torch.isfinite(p.grad).all() for p in module.parameters())


def test_gradients_pass_the_numerical_check_for_input_and_parameters(module, device):
    x = sequences(device, L=3).requires_grad_()
    mask = masks.combine(masks.causal(3, device=device), masks.padding([3, 0], device=device))
    names, parameters = zip(*module.named_parameters(), strict=True)

    def forward(x, *values):
        return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (x, mask))

    assert gradcheck(forward, (x, *parameters))


def test_permuting_the_sequence_permutes_the_output(module, device):
    x, order = sequences(device), torch.randperm(5)
    assert_close(module(x[:, order])[0], module(x)[0][:, order])


@pytest.mark.parametrize("bias", [False, True])
def test_state_dict_holds_the_parameters_and_nothing_else(bias):
    module = SelfAttention(6, 4, 5, bias=bias)
    module(torch.randn(2, 7, 6), masks.causal(7))
    assert list(module.state_dict()) == [name for name, _ in module.named_parameters()]
    assert {name.split(".")[0] for name in module.state_dict()} == {"q_proj", "k_proj", "v_proj"}
    assert list(module.buffers()) == []
    assert sum(p.numel() for p in module.parameters()) == 6 * (4 + 4 + 5) + (4 + 4 + 5) * bias


def test_two_modules_start_from_different_weights():
    # https://github.com/pytorch/pytorch/issues/86274: layers of a stack that were copies of each other
    assert not torch.equal(SelfAttention(6, 4, 5).q_proj.weight, SelfAttention(6, 4, 5).q_proj.weight)
    module = SelfAttention(6, 4, 4)
    assert not torch.equal(module.q_proj.weight, module.k_proj.weight)


@pytest.mark.parametrize(("B", "L"), [(0, 5), (2, 0), (0, 0), (1, 1)])
def test_an_empty_batch_and_an_empty_sequence_pass(B, L, module, device):
    x = sequences(device, B=B, L=L).requires_grad_()
    for mask in (None, masks.causal(L, device=device)):
        output, weights = module(x, mask)
        assert output.shape == (B, L, 5)
        assert weights.shape == (B, L, L)
        output.sum().backward()
    assert x.grad.shape == x.shape


def test_the_input_is_never_modified(module, device):
    x, mask = sequences(device), masks.padding([5, 2], device=device)
    copies = x.clone(), mask.clone()
    module(x, mask)[0].sum().backward()
    assert torch.equal(x, copies[0])
    assert torch.equal(mask, copies[1])
    assert (x._version, mask._version) == (0, 0)


@pytest.mark.parametrize("mask_dtype", [None, torch.bool, torch.float32, torch.bfloat16], ids=str)
def test_autocast_trains_with_any_mask(mask_dtype, device):
    # https://github.com/pytorch/pytorch/issues/99012, https://github.com/pytorch/pytorch/issues/111276
    module = SelfAttention(6, 4, 5).to(device)
    mask = masks.causal(5, device=device)
    if mask_dtype is not torch.bool:
        mask = None if mask_dtype is None else torch.zeros(5, 5, dtype=mask_dtype, device=device).masked_fill(~mask, -math.inf)
    x = sequences(device, dtype=torch.float32)
    with torch.autocast(device, dtype=torch.bfloat16):
        output, weights = module(x, mask)
    assert output.dtype == weights.dtype == torch.bfloat16
    output.sum().backward()
    assert all(p.grad.dtype == torch.float32 and torch.isfinite(p.grad).all() for p in module.parameters())
    assert_close(output, module(x, mask)[0], 2**-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SelfAttention(0, 4, 5), "d_model is a width, at least 1, got 0"),
        (lambda: SelfAttention(6, -4, 5), "d_k is a width, at least 1, got -4"),
        (lambda: SelfAttention(6, 4, 0), "d_v is a width, at least 1, got 0"),
        (lambda: SelfAttention(6, 4, 5)(torch.zeros(2, 5, 7)), r"\(B, L, d_model = 6\), got \(2, 5, 7\)"),
        (lambda: SelfAttention(6, 4, 5)(torch.zeros(5, 6)), r"got \(5, 6\)\. For a single sequence use x\[None\]"),
        (lambda: SelfAttention(6, 4, 5)(torch.zeros(2, 1, 5, 6)), r"got \(2, 1, 5, 6\)"),
        (
            lambda: SelfAttention(6, 4, 5)(torch.zeros(2, 5, 6), torch.ones(2, 5, 5) > 0),
            r"3-D mask.*\(2, 5, 5\).*mask\[:, None\]",
        ),
        (lambda: SelfAttention(6, 4, 5)(torch.zeros(2, 5, 6), masks.causal(4)), r"\(4, 4\) does not fit .*\(2, 1, 5, 5\)"),
    ],
)
def test_bad_input_is_refused_by_name_and_number(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_module_is_the_function_on_its_projections(module, device):
    x, mask = sequences(device), masks.causal(5, device=device)
    query, key, value = module.q_proj(x), module.k_proj(x), module.v_proj(x)
    assert_close(module(x, mask)[0], attention(query, key, value, mask))
