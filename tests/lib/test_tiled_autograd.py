"""The backward pass of tiled attention: exact, made again from what is linear in the length, with the same draws of dropout."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from lib.attention import scaled_dot_product_attention
from lib.tiled import tiled_attention
from tests.lib.efficient.dense import saved_bytes
from tests.lib.reference import assert_close, random_inputs


def eager(*inputs, **options) -> Tensor:
    return scaled_dot_product_attention(*inputs, backend="eager", **options)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dropout_p", [0.0, 0.4])
def test_gradients_are_those_of_finite_differences_for_inputs_and_float_mask(is_causal, dropout_p, device):
    inputs = random_inputs(torch.float64, device, B=1, H=2, H_kv=1, L=5, S=4, d_k=3, d_v=2, grad=True)
    mask = torch.randn(1, 2, 5, 4, dtype=torch.float64).masked_fill(torch.rand(5, 4) < 0.2, -math.inf)
    mask[..., 3, :] = -math.inf
    mask = mask.to(device)

    def attend(query, key, value, bias):
        torch.manual_seed(1)
        bias = torch.where(mask == -math.inf, mask, bias)
        return tiled_attention(query, key, value, bias, dropout_p, is_causal, enable_gqa=True, tile_size=(2, 3))

    bias = mask.masked_fill(mask == -math.inf, 0.0).requires_grad_()
    assert gradcheck(attend, (*inputs, bias))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"dropout_p": 0.1}], ids=str)
def test_saved_memory_grows_with_the_length_and_not_with_its_square(options):
    ours = [saved_bytes(partial(tiled_attention, **options), L) for L in (256, 512, 1024)]
    # query, key, value and output of 8 numbers, peak and total of 1, 4 bytes each, for 2 heads
    assert ours == [2 * 4 * (4 * 8 + 2) * L for L in (256, 512, 1024)]
    squares = [saved_bytes(partial(eager, **options), L) for L in (256, 512, 1024)]
    assert squares[2] / squares[1] > 3.5, "eager keeps the weights, so this way of counting sees a square"


def test_dropout_follows_the_seed_and_its_mean_is_the_undropped_output():
    inputs = [x.expand(1000, -1, -1, -1) for x in random_inputs(torch.float64, B=1, L=9)]

    def draw(seed: int, p: float = 0.3) -> Tensor:
        torch.manual_seed(seed)
        return tiled_attention(*inputs, dropout_p=p, tile_size=4)

    draws = draw(0)
    assert torch.equal(draws, draw(0))
    assert not torch.equal(draws, draw(1))
    deviation = (draws.mean(0) - tiled_attention(*inputs)[0]) / (draws.std(0) / 1000**0.5)
    assert deviation.abs().max() < 5
    assert not draw(0, p=1.0).any()


def test_dropped_weights_differ_between_tiles_heads_and_sequences():
    query, key = torch.zeros(2, 2, 32, 4), torch.zeros(2, 2, 32, 4)
    value = torch.eye(32).expand(2, 2, -1, -1)  # the output is then the weights
    kept = tiled_attention(query, key, value, dropout_p=0.5, tile_size=8) > 0
    pieces = kept.unflatten(2, (4, 8)).unflatten(-1, (4, 8)).transpose(3, 4).reshape(-1, 64)
    assert pieces.unique(dim=0).size(0) == len(pieces)


@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_checkpointing_repeats_the_draws(dropout_p):
    inputs = random_inputs(torch.float32, L=9, grad=True)

    def attend(*inputs):
        return tiled_attention(*inputs, dropout_p=dropout_p, tile_size=4)

    def gradients(function, *arguments, **options):
        torch.manual_seed(3)
        return torch.autograd.grad(function(*arguments, **options).square().sum(), inputs)

    kept = gradients(attend, *inputs)
    again = gradients(torch.utils.checkpoint.checkpoint, attend, *inputs, use_reentrant=False)
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


def test_torch_func_differentiates_it():
    query, key, value = random_inputs(torch.float64, L=9)
    ours, expected = (
        torch.func.grad(lambda k: attend(query, k, value).square().sum())(key)  # noqa: B023
        for attend in (lambda *x: tiled_attention(*x, tile_size=4), eager)
    )
    assert_close(ours, expected)


def test_a_second_derivative_is_refused():
    query, key, value = random_inputs(torch.float64, grad=True)
    (first,) = torch.autograd.grad(tiled_attention(query, key, value).square().sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="twice"):
        first.sum().backward()
