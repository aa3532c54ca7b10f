"""Full inside a segment, summaries of the others: equal to a plain loop, and to exact attention where nothing is lost."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lib import masks
from lib.efficient import SegmentedAttention, segmented, segmented_attention
from tests.lib.efficient.dense import assert_padding_does_not_show, assert_same, dense, links, on, saved_bytes, sequences
from tests.lib.reference import assert_close


def by_loops(query, key, value, segment, probes, mask, is_causal) -> Tensor:
    """The definition, query by query: own keys count 1, each summary the number of keys it speaks for over r."""
    B, H, L, d_k = query.shape
    group = H // key.size(1)
    real = torch.ones(B, L, dtype=torch.bool) if mask is None else mask.expand(B, 1, 1, L)[:, 0, 0]
    rows = []
    for b, h, i in ((b, h, i) for b in range(B) for h in range(H) for i in range(L)):
        k, v, p = key[b, h // group], value[b, h // group], probes[h // group if len(probes) > 1 else 0]
        own = [j for j in range(L) if j // segment == i // segment and real[b, j] and not (is_causal and j > i)]
        keys, values, counts = [k[j] for j in own], [v[j] for j in own], [1.0] * len(own)
        for start in range(0, L, segment):
            members = [j for j in range(start, min(start + segment, L)) if real[b, j]]
            if start // segment == i // segment or (is_causal and start > i) or not members:
                continue
            for probe in p:
                weights = (k[members] @ probe).softmax(dim=0)
                keys.append(weights @ k[members])
                values.append(weights @ v[members])
                counts.append(len(members) / len(p))
        if not keys:
            rows.append(0 * (query.sum() + key.sum() + v.sum(dim=0)))
            continue
        scores = torch.stack(keys) @ query[b, h, i] / d_k**0.5
        weights = scores.new_tensor(counts) * (scores - scores.max()).exp()
        rows.append(weights / weights.sum() @ torch.stack(values))
    return torch.stack(rows).view(B, H, L, -1)


@settings(max_examples=25)
@given(
    case=sequences(shortest=1, longest=17, kinds=("none", "boolean")),
    segment=st.integers(1, 9),
    r=st.integers(0, 3),
    is_causal=st.booleans(),
)
def test_output_and_gradients_are_those_of_the_loops(device, case, segment, r, is_causal):
    inputs, mask = on(device, case)
    heads = inputs[1].size(1)
    probes = torch.randn(heads, r, 3, dtype=torch.float64, device=device) if r else None
    options = {"attn_mask": mask, "is_causal": is_causal, "enable_gqa": inputs[0].size(1) != heads}
    mean = torch.zeros(1, 1, 3, dtype=torch.float64, device=device)
    assert_same(
        lambda *x: segmented_attention(*x, segment, probes=probes, **options),
        lambda *x: by_loops(*x, segment, mean if probes is None else probes, mask, is_causal),
        inputs,
    )


def test_no_token_gives_no_output():
    inputs = [torch.zeros(2, 3, 0, width) for width in (4, 4, 5)]
    assert segmented_attention(*inputs, 7).shape == (2, 3, 0, 5)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("segment", [1, 30, 100])
def test_segments_of_one_and_a_single_segment_are_exact_attention(segment, is_causal):
    inputs = [torch.randn(2, 4, 30, 3, dtype=torch.float64)] + [torch.randn(2, 2, 30, 3, dtype=torch.float64) for _ in "kv"]
    mask = masks.padding([30, 17], 30)
    attend = partial(segmented_attention, segment=segment, attn_mask=mask, is_causal=is_causal, enable_gqa=True)
    full = masks.combine(mask, masks.causal(30) if is_causal else None)
    assert_same(attend, lambda *x: dense(*x, full), inputs)


@pytest.mark.parametrize("r", [1, 3])
def test_a_summary_of_equal_keys_loses_nothing(r):
    query, parts = torch.randn(1, 2, 23, 4, dtype=torch.float64), torch.randn(1, 2, 5, 4, dtype=torch.float64)
    key = parts.repeat_interleave(5, dim=2)[:, :, :23]  # segments of 5 equal keys, the last of 3
    value = torch.randn(1, 2, 23, 4, dtype=torch.float64)
    probes = torch.randn(2, r, 4, dtype=torch.float64)
    exact = dense(query, key, value, None)
    assert_close(segmented_attention(query, key, value, 5, probes=probes), exact)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("learned", [True, False])
def test_links_reach_the_own_segment_and_every_other_and_the_future_only_where_allowed(learned, is_causal):
    probes = torch.randn(1, 2, 4, dtype=torch.float64) if learned else None
    seen = links(partial(segmented_attention, segment=7, probes=probes, is_causal=is_causal), 40)
    assert torch.equal(seen, masks.causal(40) if is_causal else torch.ones(40, 40, dtype=torch.bool))


@pytest.mark.parametrize("is_causal", [True, False])
def test_padding_does_not_show(is_causal):
    probes = torch.randn(2, 2, 3, dtype=torch.float64)
    assert_padding_does_not_show(lambda *x: segmented_attention(*x[:3], 8, probes=probes, attn_mask=x[3], is_causal=is_causal))


def test_saved_memory_grows_far_slower_than_the_square():
    short, long = (saved_bytes(partial(segmented_attention, segment=int(L**0.5)), L) for L in (1024, 4096))
    assert long < 9 * short  # n√n: 8 times for 4 times the length
    assert saved_bytes(lambda *x: dense(*x, None), 1024) > 5 * short


def test_the_module_learns_its_probes_and_keeps_nothing_else():
    layer = SegmentedAttention(5, num_kv_heads=2, d_k=3, summaries=4).double()
    assert {name: tuple(x.shape) for name, x in layer.state_dict().items()} == {"probes": (2, 4, 3)}
    assert layer.probes.flatten(0, 1).unique(dim=0).size(0) == 8, "copies would stay copies"
    inputs = [torch.randn(1, 4, 23, 3, dtype=torch.float64), *(torch.randn(1, 2, 23, 3, dtype=torch.float64) for _ in "kv")]
    output = layer(*inputs, is_causal=True, enable_gqa=True)
    assert_close(output, segmented_attention(*inputs, 5, probes=layer.probes, is_causal=True, enable_gqa=True))
    output.square().sum().backward()
    assert (layer.probes.grad.abs().sum(-1) > 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_stays_near_float64(dtype):
    """The summaries are rounded once more than a key is; 4 ulp of the largest value cover both."""
    inputs = [torch.randn(1, 2, 200, 16).to(dtype) for _ in range(3)]
    exact = segmented_attention(*(x.double() for x in inputs), 16, is_causal=True)
    output = segmented_attention(*inputs, 16, is_causal=True)
    assert output.dtype == dtype
    assert_close(output, exact, 4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_takes_float32_inputs_and_probes(dtype):
    layer = SegmentedAttention(8, num_kv_heads=2, d_k=4)
    inputs = [torch.randn(1, 2, 30, 4, requires_grad=True) for _ in range(3)]
    with torch.autocast("cpu", dtype):
        output = layer(*inputs, is_causal=True)
    output.float().sum().backward()
    assert output.dtype == dtype
    assert all(x.grad.isfinite().all() for x in (*inputs, layer.probes))


def own_segment_too(real, count, r, is_causal, dtype):
    mask = right_mask(real, count, r, is_causal, dtype)
    size, weight = real.size(-1), (real.sum(-1).to(dtype) / r).log().view(-1)
    for t in range(count):
        mask[t, ..., size + t * r : size + (t + 1) * r] = weight[t]
    return mask


def summaries_count_as_one(real, count, r, is_causal, dtype):
    return right_mask(real, count, r, is_causal, dtype).clamp(max=0.0)


def future_summaries(real, count, r, is_causal, dtype):
    own, others = (right_mask(real, count, r, causal, dtype) for causal in (is_causal, False))
    return torch.cat([own[..., : real.size(-1)], others[..., real.size(-1) :]], dim=-1)


right_mask = segmented._mask
FAULTS = {
    "own segment too": own_segment_too,
    "counts forgotten": summaries_count_as_one,
    "causality forgotten": future_summaries,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault, monkeypatch):
    inputs = [torch.randn(1, 1, 13, 3, dtype=torch.float64) for _ in range(3)]
    probes = torch.randn(1, 2, 3, dtype=torch.float64)
    ours = partial(segmented_attention, segment=5, probes=probes, is_causal=True)
    expected = partial(by_loops, segment=5, probes=probes, mask=None, is_causal=True)
    assert_same(ours, expected, inputs)
    monkeypatch.setattr(segmented, "_mask", FAULTS[fault])
    with pytest.raises(AssertionError, match="away"):
        assert_same(ours, expected, inputs)


BAD_INPUTS = {
    "segment": ({"segment": 0}, ValueError, "segment must be at least 1, got 0"),
    "float mask": ({"attn_mask": torch.zeros(1, 9)}, TypeError, "boolean mask of keys.*float32"),
    "mask for each head": ({"attn_mask": torch.ones(1, 2, 1, 9, dtype=torch.bool)}, ValueError, r"got \(1, 2, 1, 9\)"),
    "probes": ({"probes": torch.zeros(3, 1, 4)}, ValueError, r"\(2 or 1, at least 1, 4\), got \(3, 1, 4\)"),
    "lengths": ({"query": torch.zeros(1, 2, 1, 4)}, ValueError, "got 1 queries and 9 keys"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_an_error_names_what_does_not_fit(name):
    changed, kind, message = BAD_INPUTS[name]
    arguments = dict.fromkeys(("query", "key", "value"), torch.zeros(1, 2, 9, 4)) | {"segment": 3} | changed
    with pytest.raises(kind, match=message):
        segmented_attention(**arguments)


def test_a_module_without_room_is_refused():
    with pytest.raises(ValueError, match="summaries must be at least 1, got 0"):
        SegmentedAttention(4, 2, 8, summaries=0)
