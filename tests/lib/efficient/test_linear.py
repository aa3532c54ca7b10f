"""Linear attention: its three forms give one result, that of the O(n²) definition, in every dtype."""

import copy
import pickle
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lib import masks
from lib.efficient import (
    elu_features,
    linear,
    linear_attention,
    linear_attention_step,
    random_features,
    relu_features,
)
from lib.efficient.linear import FORMS
from tests.lib.efficient.dense import (
    assert_padding_does_not_show,
    assert_same,
    dense,
    links,
    on,
    saved_bytes,
    sequences,
    with_gradients,
)
from tests.lib.reference import assert_close, furthest

FEATURES = {
    "elu": elu_features,
    "relu": relu_features,
    "random": random_features(3, 8, generator=torch.Generator().manual_seed(1)),
}


def definition(query, key, value, feature_map, mask=None, is_causal=False) -> Tensor:
    """Σ_j φ(q_i)·φ(k_j) v_j over Σ_j φ(q_i)·φ(k_j), from the whole matrix of weights."""
    key, value = (x.repeat_interleave(query.size(1) // x.size(1), dim=1) for x in (key, value))
    weights = torch.einsum("bhif,bhjf->bhij", feature_map(query), feature_map(key))
    if mask is not None:
        weights = weights * mask
    if is_causal:
        weights = weights * masks.causal(query.size(2), device=query.device)
    total = weights.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, weights / torch.where(total > 0, total, 1.0), 0.0) @ value


@pytest.mark.parametrize("features", FEATURES)
@given(case=sequences(longest=30, kinds=("none", "boolean")), chunk=st.integers(1, 40), is_causal=st.booleans())
def test_every_form_is_the_definition_output_and_gradients(features, device, case, chunk, is_causal):
    inputs, mask = on(device, case)
    phi, shared = FEATURES[features], inputs[0].size(1) != inputs[1].size(1)
    for form in FORMS:
        attend = partial(
            linear_attention,
            attn_mask=mask,
            is_causal=is_causal,
            enable_gqa=shared,
            feature_map=phi,
            form=form,
            chunk_size=chunk,
        )
        assert_same(attend, lambda *x: definition(*x, phi, mask, is_causal), inputs, 1e-10 if features == "random" else None)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_summed_in_float32_in_every_form(dtype, form):
    """fast-transformers#11, #32; performer-pytorch#21; xformers#96: T 3, H 2; a wrong axis shows where T ≠ H."""
    inputs = [torch.randn(1, 2, 3, 4).to(dtype) for _ in range(3)]
    exact = definition(*(x.double() for x in inputs), elu_features, is_causal=True)
    output = linear_attention(*inputs, is_causal=True, form=form)
    assert output.dtype == dtype
    assert_close(output, exact, torch.finfo(dtype).eps)  # one rounding, at the end


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_causal", [True, False])
def test_sums_beyond_the_range_of_float16_do_not_overflow(form, is_causal):
    query = key = torch.full((1, 2, 600, 4), 30.0, dtype=torch.float16)
    value = torch.randn(1, 2, 600, 4).to(torch.float16)
    weights = elu_features(query.float()).square().sum(-1).sum()
    assert weights > torch.finfo(torch.float16).max
    output = linear_attention(query, key, value, is_causal=is_causal, form=form)
    count = torch.arange(1, 601)[:, None] if is_causal else 600
    mean = value.double().cumsum(2) / count if is_causal else value.double().mean(2, keepdim=True).expand(1, 2, 600, 4)
    assert_close(output, mean, 2 * torch.finfo(torch.float16).eps)


def test_steps_of_a_decoder_are_the_causal_pass_and_leave_the_state_they_got():
    query, key, value = torch.randn(2, 4, 20, 3), torch.randn(2, 2, 20, 3), torch.randn(2, 2, 20, 5)
    inputs = [x.double() for x in (query, key, value)]
    state, outputs = None, []
    for t in range(20):
        before = None if state is None else state.clone()
        output, after = linear_attention_step(*(x[:, :, t : t + 1] for x in inputs), state, enable_gqa=True)
        assert before is None or torch.equal(state, before)
        outputs.append(output)
        state = after
    assert state.shape == (2, 4, 3, 6)  # whatever the number of tokens
    assert_close(torch.cat(outputs, dim=2), linear_attention(*inputs, is_causal=True, enable_gqa=True))


def test_the_state_of_half_precision_is_kept_in_float32():
    _, state = linear_attention_step(*(torch.randn(1, 2, 1, 4).half() for _ in range(3)))
    assert state.dtype == torch.float32


@pytest.mark.parametrize("form", FORMS)
def test_causality_is_an_exact_zero_gradient(form):
    seen = links(partial(linear_attention, is_causal=True, form=form, chunk_size=8), 30)
    assert torch.equal(seen, masks.causal(30))


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_padding_does_not_show(form, is_causal):
    assert_padding_does_not_show(
        lambda *x: linear_attention(*x[:3], attn_mask=x[3], is_causal=is_causal, form=form, chunk_size=16)
    )


def test_queries_and_keys_may_differ_in_number_without_causality():
    query, key, value = torch.randn(2, 2, 5, 3), torch.randn(2, 2, 9, 3), torch.randn(2, 2, 9, 4)
    inputs = [x.double() for x in (query, key, value)]
    assert_same(linear_attention, lambda *x: definition(*x, elu_features), inputs)


def test_rows_without_any_weight_are_0_with_finite_gradients():
    query, key, value = (torch.randn(1, 1, 6, 4, requires_grad=True) for _ in range(3))
    output = linear_attention(-query.abs(), key, value, feature_map=relu_features)
    output.sum().backward()
    assert not output.any()
    assert all(x.grad.isfinite().all() for x in (query, key, value))


@pytest.mark.parametrize("form", ["chunked", "recurrent"])
def test_saved_memory_grows_with_the_length(form):
    attend = partial(linear_attention, is_causal=True, form=form, chunk_size=32)
    short, long = saved_bytes(attend, 512), saved_bytes(attend, 1024)
    assert long < 2.1 * short
    assert saved_bytes(lambda *x: dense(*x, None), 1024) > 3.5 * saved_bytes(lambda *x: dense(*x, None), 512)


def test_elu_features_keep_their_digits_far_below_zero():
    x = torch.tensor([-50.0, -20.0, -1.0, 0.0, 2.0])
    exact = torch.where(x > 0, x.double() + 1, x.double().exp())
    assert_close(elu_features(x) / exact, torch.ones(5), 1e-6)
    assert furthest(torch.nn.functional.elu(x) + 1, elu_features(x)) < 1e-6


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("dtype", "level"), [(torch.float32, -51.0), (torch.float32, -80.0), (torch.float16, -60.0), (torch.float32, 1e15)], ids=str
)
def test_features_whose_products_leave_the_range_keep_their_weights(dtype, level, form, is_causal):
    """Products of e^−51 and e^−51 are nothing in float32; those of 10¹⁵ and 10¹⁵ and 10¹⁵ are too much for it."""
    inputs = [torch.randn(1, 2, 9, 4).to(dtype) for _ in range(3)]
    inputs = [(x + level).to(dtype) if x is not inputs[2] else (x * max(level, 1.0)).to(dtype) for x in inputs]
    expected = with_gradients(partial(definition, feature_map=elu_features, is_causal=is_causal), [x.double() for x in inputs])
    output = with_gradients(partial(linear_attention, form=form, is_causal=is_causal, chunk_size=4), inputs)
    assert expected[0].abs().max() > 0.1
    for own, exact in zip(output, expected, strict=True):
        assert_close(own, exact, 20 * torch.finfo(dtype).eps * max(1.0, exact.abs().max().item()))


def test_a_step_keeps_weights_whose_products_leave_the_range():
    inputs = [torch.randn(1, 2, 5, 4) - 60.0, torch.randn(1, 2, 5, 4) - 60.0, torch.randn(1, 2, 5, 3)]
    state, outputs = None, []
    for parts in zip(*(x.split(1, dim=2) for x in inputs), strict=True):
        output, state = linear_attention_step(*parts, state)
        outputs.append(output)
    assert_close(torch.cat(outputs, dim=2), definition(*(x.double() for x in inputs), elu_features, is_causal=True), 1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_random_features_of_long_vectors_do_not_vanish(masked):
    phi = random_features(4, 32, generator=torch.Generator().manual_seed(0))
    query, key, value = (torch.randn(1, 2, 9, 4, dtype=torch.float64) for _ in range(3))
    query, key = (35 * x / x.norm(dim=-1, keepdim=True) for x in (query, key))  # |x|² / 2√d_k = 306
    mask = torch.arange(9) < 5 if masked else None
    key[:, :, 5:] *= 0.1 if masked else 1.0  # what is hidden is not what the others are measured by
    mask = None if mask is None else mask[None, None, None]
    assert not phi(key[:, :, :5].float()).any()
    expected = with_gradients(partial(definition, feature_map=phi, mask=mask), [query, key, value])
    output = with_gradients(
        partial(linear_attention, feature_map=phi, attn_mask=mask), [query.float(), key.float(), value.float()]
    )
    assert expected[0].abs().amax(dim=-1).all()
    for own, exact in zip(output, expected, strict=True):
        assert_close(own, exact, 1e-3 * max(1.0, exact.abs().max().item()))
    nobody = linear_attention(query, key, value, feature_map=phi, attn_mask=torch.zeros(1, 9, dtype=torch.bool))
    assert not nobody.any()


def test_rows_without_any_weight_have_finite_gradients_beside_large_keys_too():
    query, key, value = (torch.full((1, 1, 6, 4), x, requires_grad=True) for x in (-1.0, 1e4, 1e4))
    output = linear_attention(query, key, value, feature_map=relu_features)
    output.sum().backward()
    assert all(x.grad.isfinite().all() for x in (query, key, value))


def test_random_features_travel_alone(device):
    phi, x = random_features(8, 4), torch.randn(2, 8, device=device)
    expected, small = phi(x), len(pickle.dumps(random_features(8, 4)))
    for copied in (pickle.loads(pickle.dumps(phi)), copy.deepcopy(phi)):
        assert torch.equal(copied(x), expected)
    assert len(pickle.dumps(phi)) == small  # without the copies for devices and dtypes


def test_random_features_are_drawn_on_the_cpu_whatever_the_default_device():
    expected = random_features(8, 4, generator=torch.Generator().manual_seed(3))
    with torch.device("meta"):
        phi = random_features(8, 4, generator=torch.Generator("cpu").manual_seed(3))
    x = torch.randn(2, 8)
    assert torch.equal(phi(x), expected(x))


def test_random_features_are_copied_once_and_serve_training_after_inference():
    phi, x = random_features(8, 4), torch.randn(2, 8, requires_grad=True)
    with torch.inference_mode():
        phi(x)
    kept = list(phi._copies.values())
    phi(x).sum().backward()
    assert [id(y) for y in phi._copies.values()] == [id(y) for y in kept]
    assert x.grad.isfinite().all()
    phi(x.double())
    assert len(phi._copies) == 2


def test_random_features_estimate_softmax_attention_better_the_more_there_are():
    inputs = [0.5 * torch.randn(1, 1, 40, 8, dtype=torch.float64) for _ in range(3)]
    exact = dense(*inputs, None)
    errors = []
    for count in (16, 4096):
        maps = [random_features(8, count, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
        outputs = [linear_attention(*inputs, feature_map=phi) for phi in maps]
        errors.append(torch.stack([(output - exact).square().mean() for output in outputs]).mean().sqrt())
    assert errors[1] < errors[0] / 8  # 1/√m: a sixteenth


def test_random_features_follow_their_generator():
    x = torch.randn(2, 8)
    one, same, other = (random_features(8, 4, generator=torch.Generator().manual_seed(seed))(x) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_autocast_keeps_the_state_in_float32():
    inputs = [torch.randn(1, 2, 300, 4) for _ in range(3)]
    exact = definition(*(x.bfloat16().double() for x in inputs), elu_features, is_causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        output = linear_attention(*inputs, is_causal=True)
    assert output.dtype == torch.bfloat16
    assert_close(output, exact, torch.finfo(torch.bfloat16).eps)


def normalized_over_the_wrong_axis(sums):
    return sums[..., :-1] / sums[..., -1:].sum(dim=1, keepdim=True)


def state_of_the_end(query, key, value, size):
    return right_chunked(query, key, value, size) + query @ (key.mT @ value)


def cut_instead_of_padded(x, multiple):
    return x[:, :, : x.size(2) // multiple * multiple]


right_chunked = linear._chunked
FAULTS = {"_normalize": normalized_over_the_wrong_axis, "_chunked": state_of_the_end, "pad": cut_instead_of_padded}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, monkeypatch):
    inputs = [torch.randn(1, 2, 11, 3, dtype=torch.float64) for _ in range(3)]
    attend = partial(linear_attention, is_causal=True, chunk_size=4)
    expected = partial(definition, feature_map=elu_features, is_causal=True)
    assert_same(attend, expected, inputs)
    monkeypatch.setattr(linear, name, FAULTS[name])
    with pytest.raises(AssertionError, match=r"away|shape"):
        assert_same(attend, expected, inputs)


BAD_INPUTS = {
    "form": ({"form": "fast"}, ValueError, "chunked, parallel, recurrent, got 'fast'"),
    "chunk": ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1, got 0"),
    "lengths": ({"query": torch.zeros(1, 2, 1, 4), "is_causal": True}, ValueError, "got 1 queries and 9 keys"),
    "float mask": ({"attn_mask": torch.zeros(1, 9)}, TypeError, "no scores to add a float mask to, got torch.float32"),
    "rows in the mask": ({"attn_mask": torch.ones(9, 9, dtype=torch.bool)}, ValueError, r"the same for every query.*\(9, 9\)"),
    "axes": ({"query": torch.zeros(9, 4)}, ValueError, r"four axes, got query \(9, 4\)"),
    "widths": ({"query": torch.zeros(1, 2, 9, 5)}, ValueError, "d_k is 5 in the query and 4 in the key"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_an_error_names_what_does_not_fit(name):
    changed, kind, message = BAD_INPUTS[name]
    with pytest.raises(kind, match=message):
        linear_attention(**dict.fromkeys(("query", "key", "value"), torch.zeros(1, 2, 9, 4)) | changed)


def test_a_step_refuses_more_than_a_token_and_a_state_of_another_shape():
    with pytest.raises(ValueError, match="one token, got 2 queries and 2 keys"):
        linear_attention_step(*(torch.zeros(1, 2, 2, 4) for _ in range(3)))
    with pytest.raises(ValueError, match=r"= \(1, 2, 4, 5\), got \(1, 2, 4, 4\)"):
        linear_attention_step(*(torch.zeros(1, 2, 1, 4) for _ in range(3)), torch.zeros(1, 2, 4, 4))


def test_random_features_without_room_are_refused():
    with pytest.raises(ValueError, match="num_features must be at least 1, got 0"):
        random_features(4, 0)
