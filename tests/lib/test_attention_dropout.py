"""Dropout keeps the mean, is seen by the output alone, and leaves no trace when it is off."""

import math

import pytest
import torch
from torch import nn

from lib import masks
from lib.attention import scaled_dot_product_attention as attention
from tests.lib.reference import DTYPES, assert_close, random_inputs


def with_weights_in_sight(backend, device, dropout_p, *, n=64, mask=None):
    """Attention over values that are the unit vectors: its output (8, 2, n, n) is the weights after dropout."""
    query, key, _ = random_inputs(torch.float32, device, B=8, L=n)
    value = torch.eye(n, device=device).expand(8, 2, n, n)
    _, weights = attention(query, key, value, mask, need_weights=True)
    return attention(query, key, value, mask, dropout_p, backend=backend), weights


@pytest.mark.parametrize("dropout_p", [0.1, 0.5, 0.9])
def test_a_weight_is_dropped_or_divided_by_what_is_kept(dropout_p, backend, device):
    dropped, weights = with_weights_in_sight(backend, device, dropout_p)
    kept = dropped != 0
    assert_close(dropped[kept], weights[kept] / (1 - dropout_p))
    # The share that is kept, within 5 standard deviations of a binomial count.
    n = kept.numel()
    assert abs(kept.double().mean() - (1 - dropout_p)) < 5 * math.sqrt(dropout_p * (1 - dropout_p) / n)


@pytest.mark.parametrize("dropout_p", [0.1, 0.5])
def test_the_mean_of_the_output_is_kept(dropout_p, backend, device):
    dropped, weights = with_weights_in_sight(backend, device, dropout_p)
    deviation = math.sqrt(dropout_p / (1 - dropout_p) * weights.double().square().sum())
    assert abs(dropped.double().sum() - weights.double().sum()) < 5 * deviation


def test_dropping_everything_gives_zero_not_nan(backend, device):
    inputs = random_inputs(torch.float32, device, grad=True)
    output = attention(*inputs, dropout_p=1.0, backend=backend)
    output.sum().backward()
    assert not output.any()
    assert all(not x.grad.any() for x in inputs)


def test_what_is_hidden_stays_hidden_under_dropout(backend, device):
    mask = masks.causal(64, device=device)
    dropped, _ = with_weights_in_sight(backend, device, 0.3, mask=mask)
    assert not dropped.masked_select(~mask).any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dropout_p", [0.0, 0.5, 1.0])
def test_returned_weights_are_taken_before_dropout_so_their_rows_sum_to_1(dtype, dropout_p, device):
    # https://github.com/pytorch/pytorch/issues/42929, https://github.com/pytorch/pytorch/issues/33360
    # https://github.com/pytorch/pytorch/issues/90842
    inputs = random_inputs(dtype, device)
    output, weights = attention(*inputs, dropout_p=dropout_p, need_weights=True)
    # Half precision: five numbers below 1, each rounded once, by at most half a unit in the last place.
    assert_close(
        weights.double().sum(-1), torch.ones(2, 2, 5), {torch.bfloat16: 5 * 2**-9, torch.float16: 5 * 2**-12}.get(dtype, 1e-6)
    )
    assert torch.equal(weights, attention(*inputs, need_weights=True)[1])
    assert torch.equal(output, attention(*inputs, need_weights=True)[0]) == (dropout_p == 0)


class OneDropout(nn.Module):
    """Attention with dropout as a module decides it: in one place, by its mode."""

    def __init__(self, dropout: float, backend: str):
        super().__init__()
        self.dropout, self.backend = dropout, backend

    def forward(self, query, key, value):
        return attention(query, key, value, dropout_p=self.dropout if self.training else 0.0, backend=self.backend)


def test_eval_is_the_same_twice_and_the_same_as_no_dropout_at_all(backend, gradient_mode, device):
    # https://github.com/pytorch/pytorch/issues/124464, https://github.com/huggingface/pytorch-image-models/issues/1978
    # https://github.com/pytorch/torchtune/issues/1791
    inputs = random_inputs(torch.float32, device)
    module = OneDropout(0.9, backend).eval()
    with gradient_mode():
        once, twice = module(*inputs), module(*inputs)
        assert torch.equal(once, twice)
        assert torch.equal(once, OneDropout(0.0, backend).train()(*inputs))
        assert not torch.equal(once, module.train()(*inputs)), "in training the dropout is on"


def test_without_dropout_no_random_number_is_drawn(backend, device):
    inputs = random_inputs(torch.float32, device)
    get_state = torch.cuda.get_rng_state if device == "cuda" else torch.get_rng_state
    state = get_state()
    attention(*inputs, dropout_p=0.0, backend=backend)
    assert torch.equal(get_state(), state)


def test_the_same_seed_drops_the_same_weights(backend, device):
    inputs = random_inputs(torch.float32, device)
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        results.append(attention(*inputs, dropout_p=0.5, backend=backend))
    assert torch.equal(*results)
