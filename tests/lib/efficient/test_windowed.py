"""A sliding window: what the dense mask gives, in memory that grows with the length."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib import masks
from lib.efficient import windowed, windowed_attention
from tests.lib.efficient.dense import assert_padding_does_not_show, assert_same, dense, links, on, saved_bytes, sequences
from tests.lib.reference import assert_as_good_as, same_dtype_attention


def window_mask(L: int, window: int, is_causal: bool, mask=None, device="cpu"):
    return masks.combine(masks.sliding_window(L, window, is_causal, device=device), mask)


@given(case=sequences(longest=220), half=st.integers(0, 90), is_causal=st.booleans())
def test_output_and_gradients_are_those_of_the_dense_mask_over_any_length_and_window(device, case, half, is_causal):
    inputs, mask = on(device, case)
    window, L = 2 * half + 1, inputs[0].size(2)
    attend = partial(
        windowed_attention,
        window=window,
        attn_mask=mask,
        is_causal=is_causal,
        enable_gqa=inputs[0].size(1) != inputs[1].size(1),
    )
    band = window_mask(L, window, is_causal, mask, device)
    assert_same(attend, lambda *x: dense(*x, band), inputs)


@pytest.mark.parametrize("window", [2, 34, 100])
def test_a_causal_window_may_be_even(window):
    inputs = [torch.randn(2, 2, 257, 3, dtype=torch.float64) for _ in range(3)]
    attend = partial(windowed_attention, window=window, is_causal=True, scale=0.3)
    assert_same(attend, lambda *x: dense(0.3 * 3**0.5 * x[0], *x[1:], window_mask(257, window, True)), inputs)


@pytest.mark.parametrize(("is_causal", "seen"), [(True, [3, 4, 5]), (False, [4, 5])])
def test_window_3_shows_the_last_of_6_queries_the_keys_it_should(is_causal, seen):
    """flash-attention#1133, transformers#39408: off by one."""
    value = torch.eye(6)[None, None]
    output = windowed_attention(torch.zeros(1, 1, 6, 4), torch.zeros(1, 1, 6, 4), value, 3, is_causal=is_causal)
    assert output[0, 0, 5].nonzero().flatten().tolist() == seen


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("window", [1, 5, 71])
def test_nothing_outside_the_window_has_any_influence(window, is_causal):
    seen = links(partial(windowed_attention, window=window, is_causal=is_causal), 180)
    # A single key takes all the weight whatever it is, but its value counts: every link shows.
    assert torch.equal(seen, masks.sliding_window(180, window, is_causal))


def test_a_second_layer_sees_one_window_further():
    def two_layers(query, key, value):
        hidden = windowed_attention(query, key, value, 9, is_causal=True)
        return windowed_attention(query, key, hidden, 9, is_causal=True)

    inputs = [torch.randn(1, 1, 150, 3, dtype=torch.float64) for _ in range(3)]
    value = inputs[2].requires_grad_()
    (gradient,) = torch.autograd.grad(two_layers(*inputs)[:, :, 100].sum(), value)
    assert gradient.abs().sum(dim=(0, 1, 3)).nonzero().flatten().tolist() == list(range(100 - 16, 101))


@pytest.mark.parametrize("is_causal", [True, False])
def test_padding_does_not_show(is_causal):
    assert_padding_does_not_show(lambda *x: windowed_attention(*x[:3], 11, attn_mask=x[3], is_causal=is_causal))


@pytest.mark.parametrize("is_causal", [True, False])
def test_saved_memory_grows_with_the_length(is_causal):
    attend = partial(windowed_attention, window=65, is_causal=is_causal)
    short, long = saved_bytes(attend, 2048), saved_bytes(attend, 4096)
    assert long < 2.05 * short
    assert saved_bytes(lambda *x: dense(*x, None), 2048) > 20 * short, "the same count sees what a dense form keeps"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_keeps_the_rule(dtype):
    inputs = [torch.randn(1, 2, 200, 16).to(dtype) for _ in range(3)]
    band = masks.sliding_window(200, 33)
    exact = dense(*(x.double() for x in inputs), band)
    assert_as_good_as(windowed_attention(*inputs, 33, is_causal=True), same_dtype_attention(*inputs, band), exact, factor=2)


def test_dropout_keeps_the_mean():
    query, key, value = (torch.randn(1, 2, 90, 4).expand(600, -1, -1, -1) for _ in range(3))
    draws = windowed_attention(query, key, value, 9, is_causal=True, dropout_p=0.3)
    deviation = draws.mean(0) - windowed_attention(query, key, value, 9, is_causal=True)[0]
    assert draws.std(0).min() > 0
    assert (deviation / (draws.std(0) / 600**0.5)).abs().max() < 5


def shifted_stretches(x, span, step):
    return right_stretches(x.roll(1, dims=2), span, step)


def narrow_window(L, window, causal=True, **options):
    return right_window(L, max(window - 2, 1), causal, **options)


def unmasked_stretches(mask, batch, span, step):
    return torch.ones_like(right_mask_stretches(mask, batch, span, step))


right_stretches, right_window, right_mask_stretches = windowed._stretches, masks.sliding_window, windowed._mask_stretches
FAULTS = {
    "stretches shifted by one": (windowed, "_stretches", shifted_stretches),
    "window too narrow": (masks, "sliding_window", narrow_window),
    "padding forgotten in the stretches": (windowed, "_mask_stretches", unmasked_stretches),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault, monkeypatch):
    inputs = [torch.randn(1, 1, 150, 3, dtype=torch.float64) for _ in range(3)]
    mask = masks.padding([120], 150)
    band = window_mask(150, 9, True, mask)
    attend = partial(windowed_attention, window=9, attn_mask=mask, is_causal=True)
    assert_same(attend, lambda *x: dense(*x, band), inputs)
    place, name, wrong = FAULTS[fault]
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises(AssertionError, match="away"):
        assert_same(attend, lambda *x: dense(*x, band), inputs)


BAD_INPUTS = {
    "even and two-sided": ({"window": 4}, "got 4. Use 3 or 5"),
    "no window": ({"window": 0, "is_causal": True}, "at least 1, got 0"),
    "a cached step": ({"query": torch.zeros(1, 2, 1, 4)}, "got 1 queries and 9 keys"),
    "three axes": ({"query": torch.zeros(2, 9, 4)}, r"takes \(B, H, L, d\), four axes, got query \(2, 9, 4\)"),
    "a row for each query": ({"attn_mask": torch.ones(9, 9, dtype=torch.bool)}, r"the same for every query.*got \(9, 9\)"),
    "heads": ({"query": torch.zeros(1, 4, 9, 4)}, "enable_gqa"),
    "one key head for two": ({"key": torch.zeros(1, 1, 9, 4), "value": torch.zeros(1, 1, 9, 4)}, "does not broadcast"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_an_error_names_what_does_not_fit(name):
    changed, message = BAD_INPUTS[name]
    arguments = dict.fromkeys(("query", "key", "value"), torch.zeros(1, 2, 9, 4)) | {"window": 3} | changed
    with pytest.raises(ValueError, match=message):
        windowed_attention(**arguments)
