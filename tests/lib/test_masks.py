"""The masks say what their names say, with one polarity, and combine without losing anything."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib import masks
from lib.attention import scaled_dot_product_attention as attention

lengths = st.integers(0, 9)


def by_loops(L, S, rule):
    """(L, S) boolean, asked link by link: rule(position of the query, position of the key)."""
    return torch.tensor([[bool(rule(i, j)) for j in range(S)] for i in range(L)], dtype=torch.bool).reshape(L, S)


@given(L=lengths, S=lengths)
def test_causal_lets_the_last_query_see_every_key_and_each_earlier_one_a_key_less(device, L, S):
    mask = masks.causal(L, S, device=device)
    assert mask.device.type == device
    assert torch.equal(mask.cpu(), by_loops(L, S, lambda i, j: j <= i + S - L))


@given(L=lengths, S=lengths, offset=st.integers(-3, 12))
def test_causal_with_an_offset_starts_at_that_position(L, S, offset):
    assert torch.equal(masks.causal(L, S, offset=offset), by_loops(L, S, lambda i, j: j <= i + offset))


@given(L=lengths)
def test_causal_is_square_without_a_number_of_keys(L):
    assert torch.equal(masks.causal(L), torch.ones(L, L, dtype=torch.bool).tril())


@given(L=lengths, S=lengths)
def test_causal_from_the_upper_left_is_what_torch_calls_causal(L, S):
    query, key, value = torch.randn(1, 1, L, 4), torch.randn(1, 1, S, 4), torch.randn(1, 1, S, 4)
    theirs = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(attention(query, key, value, masks.causal(L, S, offset=0)), theirs)


@pytest.mark.parametrize(("L", "S"), [(5, 2), (3, 0), (4, 4), (2, 5)])
def test_causal_leaves_the_first_rows_empty_where_there_are_more_queries_than_keys(L, S):
    # https://github.com/Dao-AILab/flash-attention/issues/1778
    assert masks.empty_rows(masks.causal(L, S)).flatten().tolist() == [i < L - S for i in range(L)]


@given(pieces=st.lists(st.integers(1, 4), min_size=1, max_size=5), window=st.integers(1, 6))
def test_masks_of_growing_pieces_are_rows_of_the_whole_mask(pieces, window):
    # https://github.com/pytorch/pytorch/issues/103082, https://github.com/pytorch/pytorch/issues/108108
    total, end = sum(pieces), 0
    for piece in pieces:
        start, end = end, end + piece
        assert torch.equal(masks.causal(piece, end), masks.causal(total)[start:end, :end])
        window_rows = masks.sliding_window(total, window)[start:end, :end]
        assert torch.equal(masks.sliding_window(piece, window, S=end), window_rows)
        assert torch.equal(masks.strided(piece, window, S=end), masks.strided(total, window)[start:end, :end])


@given(real=st.lists(st.integers(0, 6), max_size=4), S=st.one_of(st.none(), st.integers(6, 8)))
def test_padding_shows_the_first_keys_of_each_sequence(real, S):
    mask = masks.padding(real, S)
    width = max(real, default=0) if S is None else S
    assert mask.shape == (len(real), 1, 1, width)
    assert mask[:, 0, 0].sum(-1).tolist() == real
    assert torch.equal(mask[:, 0, 0], by_loops(len(real), width, lambda b, j: j < real[b]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64], ids=str)
def test_padding_takes_lengths_of_every_integer_type_and_beyond_its_range(dtype, device):
    mask = masks.padding(torch.tensor([3, 0], dtype=dtype, device=device), 300)
    assert mask.device.type == device
    assert mask[:, 0, 0].sum(-1).tolist() == [3, 0]


@given(L=lengths, S=lengths, window=st.integers(1, 11))
def test_a_causal_window_is_that_many_keys_the_query_itself_included(L, S, window):
    # https://github.com/Dao-AILab/flash-attention/issues/1133, https://github.com/huggingface/transformers/issues/39408
    # https://github.com/huggingface/transformers/issues/29623, https://github.com/vllm-project/vllm/issues/3385
    expected = by_loops(L, S, lambda i, j: 0 <= i + S - L - j < window)
    assert torch.equal(masks.sliding_window(L, window, S=S), expected)


def test_a_window_of_3_over_6_positions_gives_query_5_the_keys_3_4_5():
    assert masks.sliding_window(6, 3)[5].nonzero().flatten().tolist() == [3, 4, 5]
    assert masks.sliding_window(6, 3).sum(-1).tolist() == [1, 2, 3, 3, 3, 3]


@given(L=lengths, S=lengths, half=st.integers(0, 4))
def test_a_two_sided_window_reaches_equally_far_on_either_side(L, S, half):
    expected = by_loops(L, S, lambda i, j: abs(i + S - L - j) <= half)
    assert torch.equal(masks.sliding_window(L, 2 * half + 1, causal=False, S=S), expected)


@given(L=lengths, S=lengths, stride=st.integers(1, 11), causal=st.booleans())
def test_a_stride_sees_whole_multiples_away(L, S, stride, causal):
    expected = by_loops(L, S, lambda i, j: (i + S - L - j) % stride == 0 and (j <= i + S - L or not causal))
    assert torch.equal(masks.strided(L, stride, causal, S=S), expected)


@given(n=st.integers(1, 12), stride=st.integers(1, 5))
def test_window_and_stride_together_connect_every_pair_in_two_steps(n, stride):
    # Child et al. 2019, section 4: the point of the pattern is that information crosses in p = 2 steps.
    pattern = (masks.sliding_window(n, stride) | masks.strided(n, stride)).double()
    assert torch.equal(pattern @ pattern > 0, masks.causal(n))


@given(L=lengths, size=st.integers(1, 11), causal=st.booleans())
def test_blocks_see_themselves_alone(L, size, causal):
    expected = by_loops(L, L, lambda i, j: i // size == j // size and (j <= i or not causal))
    assert torch.equal(masks.blocks(L, size, causal), expected)


def test_padding_of_torchs_modules_is_turned_around(device):
    # https://github.com/rasbt/LLMs-from-scratch/issues/1062: the two polarities are both called mask
    ignored = torch.tensor([[False, False, True], [False, True, True]], device=device)
    assert torch.equal(masks.from_torch_padding(ignored), masks.padding([2, 1], 3, device=device))
    bias = torch.tensor([[0.0, -math.inf, 0.5]], device=device)
    assert torch.equal(masks.from_torch_padding(bias), bias[:, None, None])


@st.composite
def some_masks(draw):
    """Up to four masks of shapes that broadcast: boolean, float, or none."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    found = []
    for kind in draw(st.lists(st.sampled_from(["boolean", "float", "none"]), max_size=4)):
        shape = draw(st.sampled_from([(3, 4), (2, 1, 1, 4), (1, 2, 3, 1), (2, 2, 3, 4)]))
        allowed = torch.rand(shape, generator=generator) < 0.7
        bias = torch.randn(shape, generator=generator).masked_fill(~allowed, -math.inf)
        found.append({"boolean": allowed, "float": bias, "none": None}[kind])
    return found


@given(parts=some_masks())
def test_combine_allows_what_all_allow_and_adds_what_is_to_be_added(parts):
    copies = [None if mask is None else mask.clone() for mask in parts]
    joined = masks.combine(*parts)
    present = [mask for mask in parts if mask is not None]
    if not present:
        assert joined is None
        return
    total = sum(torch.zeros(m.shape).masked_fill(~m, -math.inf) if m.dtype == torch.bool else m for m in present)
    if all(mask.dtype == torch.bool for mask in present):
        assert joined.dtype == torch.bool
        assert torch.equal(joined, total == 0)
    else:
        torch.testing.assert_close(joined, total)
    assert all(mask is None or torch.equal(mask, copy) for mask, copy in zip(parts, copies, strict=True)), "inputs untouched"


def test_combine_keeps_a_float_padding_bias_beside_a_boolean_causal_mask():
    # https://github.com/pytorch/pytorch/issues/92554
    bias = torch.tensor([[[[0.0, 0.5, -math.inf]]]])
    expected = torch.tensor([[0.0, -math.inf, -math.inf], [0.0, 0.5, -math.inf], [0.0, 0.5, -math.inf]])
    for joined in (masks.combine(masks.causal(3), bias), masks.combine(bias, masks.causal(3))):
        assert torch.equal(joined[0, 0], expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_combine_keeps_the_dtype_of_a_float_mask_and_its_gradient(dtype, device):
    bias = torch.zeros(3, 3, dtype=dtype, device=device, requires_grad=True)
    joined = masks.combine(masks.causal(3, device=device), bias)
    assert joined.dtype == dtype
    joined.masked_fill(joined.isinf(), 0.0).sum().backward()
    assert torch.equal(bias.grad, torch.ones_like(bias).tril())


@pytest.mark.parametrize("kind", ["boolean", "float"])
def test_empty_rows_are_those_without_any_allowed_key(kind):
    mask = torch.tensor([[True, False], [False, False], [True, True]])
    if kind == "float":
        mask = torch.full((3, 2), torch.finfo(torch.float32).min).masked_fill(~mask, -math.inf)  # finite: a number
    assert masks.empty_rows(mask).tolist() == [[False], [True], [False]]
    assert masks.empty_rows(torch.ones(2, 3, 0, dtype=torch.bool)).all(), "no key at all"


@pytest.mark.parametrize(
    ("mask", "drawing"),
    [
        (masks.causal(3), "■ · ·\n■ ■ ·\n■ ■ ■"),
        (masks.causal(2, 4), "■ ■ ■ ·\n■ ■ ■ ■"),
        (masks.causal(4, 2), "· ·\n· ·\n■ ·\n■ ■"),
        (masks.padding([2], 3), "■ ■ ·"),
        (torch.tensor([[0.0, 0.5], [-math.inf, -2.0]]), "■ ▪\n· ▪"),
        (torch.zeros(0, 3, dtype=torch.bool), ""),
    ],
)
def test_draw_shows_a_row_for_each_query_and_a_sign_for_each_key(mask, drawing):
    assert masks.draw(mask) == drawing


ERRORS = {
    "negative length": (lambda: masks.causal(-1), ValueError, "L is a number of positions, at least 0, got -1"),
    "negative keys": (lambda: masks.causal(2, -3), ValueError, "S is a number of positions, at least 0, got -3"),
    "window of 0": (lambda: masks.sliding_window(6, 0), ValueError, "counts the query itself, so it is at least 1, got 0"),
    "negative length of a window": (lambda: masks.sliding_window(-6, 3), ValueError, "L is a number .* got -6"),
    "even window on two sides": (
        lambda: masks.sliding_window(6, 4, causal=False),
        ValueError,
        "odd, got 4. Use 3 or 5, or causal",
    ),
    "stride of 0": (lambda: masks.strided(6, 0), ValueError, "stride must be at least 1, got 0"),
    "block of 0": (lambda: masks.blocks(6, 0), ValueError, "block_size must be at least 1, got 0"),
    "blocks of a negative length": (lambda: masks.blocks(-6, 2), ValueError, "L is a number .* got -6"),
    "float lengths": (lambda: masks.padding(torch.tensor([2.0])), TypeError, "integers.*torch.float32.*from_torch_padding"),
    "boolean lengths": (lambda: masks.padding(torch.tensor([True])), TypeError, "torch.bool.*from_torch_padding"),
    "lengths in a table": (lambda: masks.padding([[1, 2]]), ValueError, r"one axis \(B,\), got shape \(1, 2\)"),
    "length above S": (lambda: masks.padding([2, 7], 5), ValueError, r"0 … S = 5, got 2 … 7\. Raise S or cut"),
    "length below 0": (lambda: masks.padding([2, -1], 5), ValueError, "0 … S = 5, got -1 … 2"),
    "padding of one axis": (lambda: masks.from_torch_padding(torch.zeros(3)), ValueError, r"shape \(B, S\), got \(3,\)"),
    "padding of integers": (
        lambda: masks.from_torch_padding(torch.zeros(2, 3, dtype=torch.int64)),
        TypeError,
        r"boolean \(True = ignore\) or float .*got torch.int64",
    ),
    "a drawing of two": (lambda: masks.draw(torch.ones(2, 1, 3, 3) > 0), ValueError, r"got \(2, 1, 3, 3\).*mask\[0, 0\]"),
    "a drawing of a row": (lambda: masks.draw(torch.ones(3) > 0), ValueError, r"shape \(L, S\), got \(3,\)"),
    "3 axes": (lambda: masks.check(torch.ones(2, 5, 5) > 0, (2, 2, 5, 5)), ValueError, r"\(2, 5, 5\).*mask\[:, None\]"),
    "integers": (lambda: masks.check(torch.ones(5, 5).int(), (1, 1, 5, 5)), TypeError, r"torch.int32.*mask\.bool\(\)"),
    "integers alone": (lambda: masks.combine(torch.ones(5, 5).int()), TypeError, r"torch.int32.*mask\.bool\(\)"),
    "integers beside floats": (lambda: masks.combine(torch.zeros(5, 5), torch.ones(5, 5).long()), TypeError, "torch.int64"),
    "integers beside booleans": (lambda: masks.combine(masks.causal(5), torch.ones(5, 5).byte()), TypeError, "torch.uint8"),
    "no tensor": (lambda: masks.combine(masks.causal(1), [[True]]), TypeError, "a mask is a tensor, got list"),
    "a drawing of integers": (lambda: masks.draw(torch.ones(5, 5).int()), TypeError, "torch.int32"),
    "empty rows of integers": (lambda: masks.empty_rows(torch.zeros(5, 5).int()), TypeError, "torch.int32"),
    "another size": (lambda: masks.check(torch.ones(5, 4) > 0, (1, 1, 5, 5)), ValueError, r"\(5, 4\).*\(1, 1, 5, 5\)"),
}


@pytest.mark.parametrize(("call", "error", "message"), ERRORS.values(), ids=ERRORS)
def test_bad_input_is_refused_by_name_and_number(call, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        call()
