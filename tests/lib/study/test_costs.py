"""The bill by formula is the bill as counted: products, bytes saved for the backward pass, bytes of the cache."""

import pytest
import torch

from lib.cache import KVCache
from lib.efficient import linear_attention_step
from lib.layers import EncoderLayer
from lib.study import costs
from lib.study.costs import FORMS, SEGMENT, WINDOW, Model, bill

# (model, length, batch): one layer each is measured.
SIZES = [(Model(1, 32, 2), 128, 1), (Model(1, 96, 3), 896, 2), (Model(1, 64, 1), 2048, 1)]
DTYPES = {4: torch.float32, 2: torch.bfloat16}


def inputs(model, length, batch, dtype=torch.float32):
    shape = batch, model.heads, length, model.width
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("model", "length", "batch"), SIZES)
@pytest.mark.parametrize("size", DTYPES)
def test_saved_bytes_are_those_that_the_graph_keeps(form, model, length, batch, size):
    x = inputs(model, length, batch, DTYPES[size])
    kept = costs.saved_bytes(costs.attention(form), *x)
    assert bill(form, model, length, batch=batch, bytes_per_number=size).saved == kept


@pytest.mark.parametrize("form", [form for form in FORMS if form != "torch"])  # torch's kernel is not to be counted
@pytest.mark.parametrize(("model", "length", "batch"), SIZES)
def test_flops_are_those_of_the_matrix_products(form, model, length, batch):
    x = inputs(model, length, batch)
    with torch.no_grad():
        counted = costs.counted_flops(lambda: costs.attention(form)(*x))
    assert bill(form, model, length, batch=batch).flops == counted


@pytest.mark.parametrize("kv_heads", [None, 1])
@pytest.mark.parametrize(("model", "length", "batch"), SIZES)
def test_the_cache_is_what_a_kv_cache_holds(model, length, batch, kv_heads):
    model = Model(model.layers, model.d_model, model.heads, kv_heads)
    kept = {"eager": length, "tiled": length, "strided": length, "torch": length}
    kept |= {"windowed": min(WINDOW, length), "segmented": SEGMENT + length // SEGMENT}
    for form, positions in kept.items():
        cache = KVCache(positions)
        cache.update(*(torch.zeros(batch, kv_heads or model.heads, positions, model.width) for _ in range(2)))
        held = sum(x.untyped_storage().nbytes() for x in (cache.keys, cache.values))
        assert bill(form, model, length, batch=batch, bytes_per_number=4).cache == held
    step = [torch.randn(batch, model.heads, 1, model.width) for _ in range(3)]
    _, state = linear_attention_step(*step)
    assert bill("linear", model, length, batch=batch).cache == state.untyped_storage().nbytes()


@pytest.mark.parametrize("kv_heads", [None, 2])
def test_the_rest_of_a_layer_is_projections_and_the_feed_forward_net(kv_heads):
    layer = EncoderLayer(64, 4, 256, num_kv_heads=kv_heads) if kv_heads else EncoderLayer(64, 4, 256)
    x = torch.randn(2, 256, 64)
    with torch.no_grad():
        counted = costs.counted_flops(lambda: layer(x))
    attention = 4 * 2 * 4 * 256**2 * 16
    assert costs.rest_flops(Model(1, 64, 4, kv_heads), 256, batch=2) == counted - attention


def test_layers_and_sequences_multiply_the_bill():
    one, many = (bill("tiled", Model(layers, 64, 4), 512, batch=layers) for layers in (1, 3))
    assert many == tuple(9 * part for part in one)


def test_the_largest_tensor_is_found_among_those_in_between():
    x = torch.randn(6, 5)
    assert costs.largest_tensor(lambda: (x.to(torch.float64) @ x.double().T).sum()) == 6 * 6 * 8
    assert costs.largest_tensor(lambda: x.chunk(2)) == 3 * 5 * 4


def test_what_it_cannot_count_is_refused():
    with pytest.raises(ValueError, match=r"form must be one of eager, .*got 'sparse'"):
        bill("sparse", Model(1, 64, 4), 512)
    with pytest.raises(ValueError, match="multiple of 128, got 500"):
        bill("eager", Model(1, 64, 4), 500)
