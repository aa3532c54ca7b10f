"""Attention by tiles: equal to the eager form over any tiles, dead ones skipped, and nothing saved that grows with L · S."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lib import masks, tiled
from lib.attention import scaled_dot_product_attention
from lib.tiled import tiled_attention
from tests.lib.properties import PROPERTIES, examine
from tests.lib.reference import BOUND, assert_as_good_as, assert_close, attention_by_loops, random_inputs, same_dtype_attention


def eager(*inputs, **options) -> Tensor:
    return scaled_dot_product_attention(*inputs, backend="eager", **options)


def with_gradients(attend, inputs, mask=None, **options) -> list[Tensor]:
    """The output and the gradients of inputs and float mask, the gradient of the output being fixed random numbers."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    leaves = inputs
    if mask is not None and mask.is_floating_point():
        mask = mask.detach().requires_grad_()
        leaves = [*inputs, mask]
    output = attend(*inputs, attn_mask=mask, enable_gqa=inputs[0].size(1) != inputs[1].size(1), **options)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return [output, *torch.autograd.grad(output, leaves, upstream.to(output))]


def assert_equals_eager(inputs, mask=None, bound=None, *, tile_size=None, **options) -> None:
    ours = with_gradients(tiled_attention, inputs, mask, tile_size=tile_size, **options)
    for own, expected in zip(ours, with_gradients(eager, inputs, mask, **options), strict=True):
        assert_close(own, expected, bound)


@pytest.mark.parametrize("tile_size", [1, (2, 4), (5, 3)], ids=str)
@pytest.mark.parametrize("holds", PROPERTIES.values(), ids=PROPERTIES)
def test_every_property_of_attention_holds_for_small_tiles(holds, tile_size):
    def attend(query, key, value, mask, **options):
        shared = query.size(1) != key.size(1)
        return tiled_attention(query, key, value, mask, enable_gqa=shared, tile_size=tile_size, **options)

    examine(holds, attend, max_examples=15)


@st.composite
def cases(draw):
    """(inputs, mask, tile size, causal, most scores alive at once), the mask None, boolean or float, with empty rows."""
    length = st.integers(0, 40)
    B, H_kv, L, S = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(length), draw(length)
    H = H_kv * draw(st.integers(1, 2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shapes = (B, H, L, 4), (B, H_kv, S, 4), (B, H_kv, S, 3)
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    shape = draw(st.sampled_from([(L, S), (1, S), (B, 1, 1, S), (1, H, L, S), (B, H, L, S)]))
    mask = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.02, 0.5, 1.0]))
    kind = draw(st.sampled_from(["none", "boolean", "float"]))
    if kind != "boolean":
        bias = torch.randn(shape, generator=generator, dtype=torch.float64)
        mask = None if kind == "none" else bias.masked_fill(~mask, -math.inf)
    tile = draw(st.integers(1, 17)), draw(st.integers(1, 17))
    return inputs, mask, tile, draw(st.booleans()), draw(st.sampled_from([1, 200, 2**17]))


@given(case=cases())
def test_output_and_every_gradient_are_those_of_eager_over_any_lengths_and_tiles(device, case):
    inputs, mask, tile, is_causal, alive = case
    inputs, mask = [x.to(device) for x in inputs], None if mask is None else mask.to(device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tiled, "_CPU" if device == "cpu" else "_GPU", (tile, alive)
        )  # how the leading axes are split must not show either
        assert_equals_eager(inputs, mask, is_causal=is_causal)


def faulty_cut(start, stop, step):
    return (slice(at, at + step) for at in range(start, stop - step + 1, step))  # forgets what is left over


def faulty_exp(x, base):
    return x.sub_(base).exp_() if x.size(-1) > 1 else torch.ones_like(x)  # earlier sums are not shrunk


def faulty_scores(q, k, mask, diagonal):
    return right_scores(q, k, mask, None if diagonal is None else diagonal + 1)  # sees one key of the future


def faulty_part(mask, rows, cols):
    return mask[..., : rows.stop - rows.start, cols]  # every tile of queries takes the mask of the first


def faulty_accumulate(total, part):
    total.copy_(part.sum_to_size(total.shape))  # the last tile replaces the others


right_scores = tiled._scores
FAULTS = {
    "_cut": faulty_cut,
    "_exp": faulty_exp,
    "_scores": faulty_scores,
    "_part": faulty_part,
    "_accumulate": faulty_accumulate,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, monkeypatch):
    inputs, mask = random_inputs(torch.float64, L=10), torch.rand(10, 10) < 0.7
    assert_equals_eager(inputs, mask, tile_size=4, is_causal=True)
    monkeypatch.setattr(tiled, name, FAULTS[name])
    with pytest.raises(AssertionError, match="away"):
        assert_equals_eager(inputs, mask, tile_size=4, is_causal=True)


# pytorch#127055: a band beside causality leaves whole tiles without a key before the first live one of a row.
BANDS = {
    "causal": (None, True),
    "band": (masks.sliding_window(640, 101, causal=False), False),
    "causal band": (masks.sliding_window(640, 30), False),
    "band behind": (masks.causal(640) & ~masks.sliding_window(640, 300), False),
    "band as floats": (torch.zeros(640, 640).masked_fill(~masks.sliding_window(640, 30), -math.inf), False),
    "band and causal": (masks.sliding_window(640, 101, causal=False), True),
}


@pytest.mark.parametrize("tile_size", [None, 64, (48, 100)], ids=str)
@pytest.mark.parametrize("band", BANDS)
def test_dead_tiles_before_a_live_one_leave_the_numbers_of_eager(band, tile_size, device):
    mask, is_causal = BANDS[band]
    mask = None if mask is None else mask.to(device)
    assert_equals_eager(random_inputs(torch.float32, device, B=1, L=640), mask, 5e-6, tile_size=tile_size, is_causal=is_causal)


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "band"])
def test_a_dead_tile_is_never_read(is_causal):
    query, key, value = random_inputs(torch.float64, L=64)
    mask = None if is_causal else masks.sliding_window(64, 16)
    expected = eager(query, key, value, mask, is_causal=is_causal)
    key[:, :, 48:] = value[:, :, 48:] = math.nan
    output = tiled_attention(query, key, value, mask, is_causal=is_causal, tile_size=16)
    assert_close(output[:, :, :48], expected[:, :, :48])


def test_causality_is_an_exact_zero_gradient_for_every_later_key():
    query, key, value = random_inputs(torch.float32, B=1, L=37, grad=True)
    output = tiled_attention(query, key, value, is_causal=True, tile_size=8)
    for i in range(37):
        for gradient in torch.autograd.grad(output[:, :, i].sum(), (key, value), retain_graph=True):
            assert not gradient[:, :, i + 1 :].any()
            assert gradient[:, :, : i + 1].any() or i == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_extreme_scores_give_the_weights_of_float64(dtype, sign):
    """±1e4 and more, which float16 could not even hold before the scale, with a peak that rises and falls over the tiles."""
    query, key, value = random_inputs(dtype, B=1, L=50, d_k=16)
    query, key = query * 300 * sign, key * torch.linspace(-20, 20, 50)[:, None].to(dtype)
    products = query.double() @ key.double().mT
    assert products.abs().max() / 4 > 1e4
    assert products.abs().max() > torch.finfo(torch.float16).max
    ours = with_gradients(tiled_attention, (query, key, value), tile_size=16)
    form = with_gradients(eager, (query, key, value))
    exact = with_gradients(eager, [x.double() for x in (query, key, value)])
    for at in (0, 3):  # output and gradient of the value
        assert_as_good_as(ours[at], form[at], exact[at], factor=2)
    # The other two are about 0: differences of nearly equal numbers, rounded in float32 and multiplied by key or query.
    assert_close(ours[1], exact[1], 2e-6 * key.abs().max().item())
    assert_close(ours[2], exact[2], 2e-6 * query.abs().max().item())


def test_a_huge_finite_bias_is_a_number_and_hides_nothing():
    query, key, value = random_inputs(torch.float32, L=6)
    bias = torch.full((6, 6), torch.finfo(torch.float32).min)
    output = tiled_attention(query, key, value, bias, tile_size=4)
    assert_close(output, value.mean(dim=2, keepdim=True).expand_as(output))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("L", "S", "size"), [(65, 65, 1.0), (128, 300, 3.0), (200, 200, 0.2)])
def test_half_precision_keeps_the_rule_over_many_tiles(dtype, L, S, size, device):
    """Gradients too: they need the output as it was summed, since rounded to half it breaks the rule."""
    inputs = [size * x for x in random_inputs(dtype, device, B=1, L=L, S=S, d_k=32)]
    exact = with_gradients(eager, [x.double() for x in inputs], is_causal=True)

    def careless(query, key, value, attn_mask, enable_gqa, **options):
        return same_dtype_attention(query, key, value, attn_mask, **options)

    plain = with_gradients(careless, inputs, is_causal=True)
    ours = with_gradients(tiled_attention, inputs, is_causal=True, tile_size=32)
    for own, form, number, factor in zip(ours, plain, exact, (2, 3, 3, 3), strict=True):
        assert own.dtype == dtype
        assert_as_good_as(own, form, number, factor=factor)
    for own, form, number in zip(ours, with_gradients(eager, inputs, is_causal=True), exact, strict=True):
        assert_as_good_as(own, form, number, factor=2)


def test_three_axes_or_two_do_as_well():
    query, key, value = random_inputs(torch.float64, L=11)
    expected = attention_by_loops(query, key, value, is_causal=True).output
    output = tiled_attention(query[0], key[0], value[0], is_causal=True, tile_size=4)
    assert_close(output, expected[0])
    assert_close(tiled_attention(query[0, 1], key[0, 1], value[0, 1], is_causal=True, tile_size=4), expected[0, 1])


def test_weights_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r'"tiled" never forms the weights.*backend="auto" or "eager"'):
        scaled_dot_product_attention(*random_inputs(torch.float32), backend="tiled", need_weights=True)


@pytest.mark.parametrize("tile_size", [0, (8, -1)], ids=str)
def test_a_tile_without_room_is_refused(tile_size):
    with pytest.raises(ValueError, match=r"at least 1 each, got \((0, 0|8, -1)\)"):
        tiled_attention(*random_inputs(torch.float32), tile_size=tile_size)


BAD_INPUTS = {
    "widths": ({"key": (2, 2, 5, 7)}, {}, ValueError, r"query \(2, 2, 5, 8\), key \(2, 2, 5, 7\)"),
    "keys and values": ({"value": (2, 2, 4, 8)}, {}, ValueError, r"value \(2, 2, 4, 8\)"),
    "axes": ({"key": (2, 5, 8)}, {}, ValueError, r"key \(2, 5, 8\)"),
    "batches": ({"key": (3, 2, 5, 8), "value": (3, 2, 5, 8)}, {}, ValueError, r"do not agree: .*key \(3, 2, 5, 8\)"),
    "heads": ({"key": (2, 3, 5, 8), "value": (2, 3, 5, 8)}, {"enable_gqa": True}, ValueError, r"key \(2, 3, 5, 8\)"),
    "dropout": ({}, {"dropout_p": 1.5}, ValueError, "got 1.5"),
    "mask of integers": ({}, {"attn_mask": torch.ones(5, 5, dtype=torch.int64)}, TypeError, "int64"),
    "mask of three axes": ({}, {"attn_mask": torch.ones(2, 5, 5, dtype=torch.bool)}, ValueError, r"mask\[:, None\]"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_an_error_names_what_does_not_fit(name):
    shapes, options, kind, message = BAD_INPUTS[name]
    shapes = {"query": (2, 2, 5, 8), "key": (2, 2, 5, 8), "value": (2, 2, 5, 8)} | shapes
    with pytest.raises(kind, match=message):
        tiled_attention(**{name: torch.zeros(shape) for name, shape in shapes.items()}, **options)


def test_mixed_dtypes_are_refused():
    query, key, value = random_inputs(torch.float32)
    with pytest.raises(TypeError, match=r"float32, torch\.float64"):
        tiled_attention(query, key.double(), value)


@pytest.mark.parametrize("dtype", BOUND, ids=str)
def test_inputs_are_left_as_they_were(dtype):
    inputs = [*random_inputs(dtype, L=9), torch.randn(9, 9, dtype=dtype)]
    before = [x.clone() for x in inputs]
    with_gradients(tiled_attention, inputs[:3], inputs[3], tile_size=4, scale=2.0)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))
