"""What holds for each of the cheaper attentions alike: one graph, no side effect, no hidden mode, empty inputs, autocast."""

from functools import partial

import pytest
import torch

from lib.efficient import linear_attention, segmented_attention, strided_attention, windowed_attention
from tests.lib.efficient.dense import with_gradients
from tests.lib.reference import assert_close

WAYS = {
    "windowed": partial(windowed_attention, window=9),
    "strided": partial(strided_attention, stride=4),
    "segmented": partial(segmented_attention, segment=8),
    "linear, chunked": partial(linear_attention, chunk_size=16),
    "linear, recurrent": partial(linear_attention, form="recurrent"),
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def attend(request):
    return request.param


def random_inputs(B=2, H=2, L=90, dtype=torch.float64, device="cpu"):
    return [torch.randn(B, H, L, width, dtype=dtype, device=device) for width in (4, 4, 5)]


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_sequence_alone_is_the_same_as_in_a_batch(attend, is_causal, device):
    inputs = random_inputs(B=3, device=device)
    whole = attend(*inputs, is_causal=is_causal)
    assert whole.shape == (3, 2, 90, 5)
    for b in range(3):
        assert_close(attend(*(x[b : b + 1] for x in inputs), is_causal=is_causal), whole[b : b + 1])


def test_every_gradient_mode_gives_the_same_numbers(attend, gradient_mode, device):
    inputs = random_inputs(device=device)
    expected = attend(*inputs, is_causal=True)
    with gradient_mode():
        assert torch.equal(attend(*inputs, is_causal=True), expected)
    assert_close(attend(*(x.clone().requires_grad_() for x in inputs), is_causal=True), expected)


@pytest.mark.parametrize("is_causal", [True, False])
def test_the_compiled_function_is_one_graph_and_gives_the_same(attend, is_causal):
    torch.compiler.reset()  # each is a function of its own, and torch counts how often one is compiled again
    inputs = random_inputs(L=12 if "form" in attend.keywords else 80)  # token by token makes a graph of every token
    compiled = torch.compile(partial(attend, is_causal=is_causal), fullgraph=True, backend="aot_eager")
    for own, expected in zip(
        with_gradients(compiled, inputs), with_gradients(partial(attend, is_causal=is_causal), inputs), strict=True
    ):
        assert_close(own, expected)


@pytest.mark.parametrize("shape", [{"B": 0}, {"L": 0}, {"L": 1}], ids=str)
@pytest.mark.parametrize("is_causal", [True, False])
def test_no_sequence_no_token_and_a_single_token(attend, shape, is_causal):
    inputs = random_inputs(**shape)
    output, *gradients = with_gradients(partial(attend, is_causal=is_causal), inputs)
    assert output.shape == (*inputs[0].shape[:3], 5)
    assert [x.shape for x in gradients] == [x.shape for x in inputs]
    if shape == {"L": 1}:
        assert_close(output, inputs[2])  # its own value


# Parts of 10⁹ tokens would not fit into any memory if they were filled up.
@pytest.mark.parametrize(
    ("attend", "size"),
    [(windowed_attention, "window"), (strided_attention, "stride"), (segmented_attention, "segment")]
    + [(partial(linear_attention, form=form), "chunk_size") for form in ("chunked", "recurrent")],
    ids=["windowed", "strided", "segmented", "chunked", "recurrent"],
)
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("L", [0, 1, 7])
def test_parts_longer_than_the_sequence_are_as_long_as_it(attend, size, is_causal, L):
    inputs = random_inputs(L=L)
    mask = torch.rand(2, 1, 1, L) < 0.7
    for options in ({}, {"attn_mask": mask}):
        expected, output = (
            with_gradients(partial(attend, **options, is_causal=is_causal, **{size: n}), inputs) for n in (2 * L + 1, 10**9 + 1)
        )
        for own, other in zip(output, expected, strict=True):
            assert_close(own, other)


@pytest.mark.parametrize(
    ("attend", "size"),
    [
        (windowed_attention, "window"),
        (strided_attention, "stride"),
        (segmented_attention, "segment"),
        (linear_attention, "chunk_size"),
    ],
)
def test_a_size_that_is_no_whole_number_is_refused(attend, size):
    with pytest.raises(TypeError, match=rf"{size} must be a whole number, got 3\.0"):
        attend(*random_inputs(), is_causal=True, **{size: 3.0})


def test_shapes_come_without_numbers_on_the_meta_device(attend):
    inputs = random_inputs(device="meta")
    for mask in (None, torch.ones(2, 1, 1, 90, dtype=torch.bool, device="meta")):
        output = attend(*inputs, attn_mask=mask, is_causal=True)
        assert (output.shape, output.is_meta) == ((2, 2, 90, 5), True)


@pytest.mark.parametrize("is_causal", [True, False])
def test_inputs_mask_included_are_left_as_they_were(attend, is_causal):
    inputs = [*random_inputs(), torch.rand(2, 1, 1, 90) < 0.5]
    before = [x.clone() for x in inputs]
    with_gradients(lambda *x: attend(*x, attn_mask=inputs[3], is_causal=is_causal), inputs[:3])
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


def test_layout_in_memory_does_not_matter(attend):
    inputs = random_inputs()
    expected = attend(*inputs, is_causal=True)
    assert_close(attend(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs), is_causal=True), expected)
    assert_close(attend(*(x.mT.contiguous().mT for x in inputs), is_causal=True), expected)


def test_under_autocast_inputs_are_taken_in_half_precision(attend):
    inputs = random_inputs(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        output = attend(*inputs, is_causal=True)
    assert output.dtype == torch.bfloat16
    assert_close(output, attend(*(x.bfloat16().double() for x in inputs), is_causal=True), 4 * torch.finfo(torch.bfloat16).eps)


def test_a_sequence_without_any_key_is_0_with_finite_gradients(attend):
    mask = torch.tensor([True, False])[:, None, None, None].expand(2, 1, 1, 90)
    output, *gradients = with_gradients(partial(attend, attn_mask=mask, is_causal=True), random_inputs())
    assert not output[1].any()
    assert output[0].any()
    assert all(x.isfinite().all() for x in gradients)
