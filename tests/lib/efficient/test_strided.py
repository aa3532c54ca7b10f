"""Every s-th key: what the dense mask gives, from sequences folded into columns."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib import masks
from lib.efficient import strided, strided_attention
from tests.lib.efficient.dense import assert_padding_does_not_show, assert_same, dense, links, on, sequences
from tests.lib.reference import assert_as_good_as, same_dtype_attention


def stride_mask(L: int, stride: int, is_causal: bool, mask=None, device="cpu"):
    return masks.combine(masks.strided(L, stride, is_causal, device=device), mask)


@given(case=sequences(longest=60), stride=st.integers(1, 70), is_causal=st.booleans())
def test_output_and_gradients_are_those_of_the_dense_mask_over_any_length_and_stride(device, case, stride, is_causal):
    inputs, mask = on(device, case)
    L, shared = inputs[0].size(2), inputs[0].size(1) != inputs[1].size(1)
    attend = partial(strided_attention, stride=stride, attn_mask=mask, is_causal=is_causal, enable_gqa=shared)
    links = stride_mask(L, stride, is_causal, mask, device)
    assert_same(attend, lambda *x: dense(*x, links), inputs)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("stride", [1, 4, 7])
def test_links_are_those_of_the_mask_and_no_others(stride, is_causal):
    seen = links(partial(strided_attention, stride=stride, is_causal=is_causal), 45)
    assert torch.equal(seen, masks.strided(45, stride, is_causal))


def test_a_window_and_a_stride_reach_everything_in_two_layers():
    """Child et al. 2019, section 4.2: a path of two steps between any two positions."""
    near = links(partial(strided_attention, stride=6, is_causal=True), 40).float()
    far = masks.sliding_window(40, 6).float()
    assert torch.equal(near @ far > 0, masks.causal(40))


@pytest.mark.parametrize("is_causal", [True, False])
def test_padding_does_not_show(is_causal):
    assert_padding_does_not_show(lambda *x: strided_attention(*x[:3], 8, attn_mask=x[3], is_causal=is_causal))


def test_stride_1_is_full_attention():
    inputs = [torch.randn(2, 2, 20, 3, dtype=torch.float64) for _ in range(3)]
    assert_same(partial(strided_attention, stride=1), lambda *x: dense(*x, None), inputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_keeps_the_rule(dtype):
    inputs = [torch.randn(1, 2, 200, 16).to(dtype) for _ in range(3)]
    mask = masks.strided(200, 3)
    exact = dense(*(x.double() for x in inputs), mask)
    assert_as_good_as(strided_attention(*inputs, 3, is_causal=True), same_dtype_attention(*inputs, mask), exact, factor=2)


def rows_for_columns(x, stride):
    return right_columns(x, stride).flip(2)


def padding_in_sight(mask, L, multiple, device):
    return right_pad_mask(mask, L, multiple, device) if mask is not None else None


right_columns, right_pad_mask = strided._columns, strided.pad_mask
FAULTS = {
    "order of the rows": ("_columns", rows_for_columns),
    "filling seen": ("pad_mask", padding_in_sight),
    "filling at the start": ("pad", lambda x, multiple: torch.nn.functional.pad(x, (0, 0, -x.size(-2) % multiple, 0))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault, monkeypatch):
    inputs = [torch.randn(1, 1, 23, 3, dtype=torch.float64) for _ in range(3)]

    def compare():
        for is_causal in (True, False):
            attend = partial(strided_attention, stride=4, is_causal=is_causal)
            assert_same(attend, lambda *x, c=is_causal: dense(*x, stride_mask(23, 4, c)), inputs)

    compare()
    monkeypatch.setattr(strided, *FAULTS[fault])
    with pytest.raises(AssertionError, match="away"):
        compare()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"stride": 0}, "stride must be at least 1, got 0"),
        ({"key": torch.zeros(1, 2, 8, 4), "value": torch.zeros(1, 2, 8, 4)}, "got 9 queries and 8 keys"),
        ({"attn_mask": torch.ones(1, 2, 9, 9, dtype=torch.bool)}, r"got \(1, 2, 9, 9\)"),
    ],
    ids=["stride", "lengths", "mask"],
)
def test_an_error_names_what_does_not_fit(changed, message):
    arguments = dict.fromkeys(("query", "key", "value"), torch.zeros(1, 2, 9, 4)) | {"stride": 3} | changed
    with pytest.raises(ValueError, match=message):
        strided_attention(**arguments)
