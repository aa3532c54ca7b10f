"""The checks are fair to sound code of another make, leave the module as it was, and find NaN."""

import pytest
import torch
from torch import nn

from lib import masks
from lib.cache import KVCache
from lib.multihead import MultiHeadAttention
from lib.study import mask_checks
from lib.study.mask_checks import CHECKS, D, H, found
from lib.study.mask_faults import FAULTS, NONE, MaskedAttention


class Library(nn.Module):
    """The library's attention, called as the small one is."""

    def __init__(self):
        super().__init__()
        self.inner = MultiHeadAttention(D, H)

    def forward(self, x, context=None, *, lengths=None, causal=False, cache=None):
        if cache is not None:
            cache = cache.setdefault("cache", KVCache(mask_checks.L))
        mask = None if lengths is None else masks.padding(lengths, x.size(1))
        return self.inner(x, context, mask=mask, is_causal=causal, cache=cache, need_weights=True)

    @property
    def q_proj(self):
        return lambda x: x @ self.inner.in_proj.weight[:D].T

    @property
    def k_proj(self):
        return lambda x: x @ self.inner.in_proj.weight[D : 2 * D].T

    @property
    def v_proj(self):
        return lambda x: x @ self.inner.in_proj.weight[2 * D :].T

    @property
    def out_proj(self):
        return self.inner.out_proj


@pytest.mark.parametrize("check", CHECKS)
def test_the_librarys_attention_passes(check):
    torch.manual_seed(0)
    assert not found(check, Library().double())


@pytest.mark.parametrize("training", [True, False])
def test_a_check_leaves_the_mode_and_no_gradient_behind(training):
    attention = MaskedAttention(D, H).double().train(training)
    for check in CHECKS:
        found(check, attention)
        assert attention.training == training
        assert all(parameter.grad is None for parameter in attention.parameters())


def test_nan_counts_as_found():
    attention = MaskedAttention(D, H).double()
    nn.init.constant_(attention.v_proj.weight, torch.nan)
    silent = {"shapes are right", "rows of weights sum to 1", "hidden weights are 0"}  # they do not look at the values
    assert {check for check in CHECKS if not found(check, attention)} == silent


def test_the_table_holds_sound_code_and_every_fault():
    answer = mask_checks.table()
    assert list(answer) == [NONE, *FAULTS]
    assert all(list(row) == list(CHECKS) for row in answer.values())
    assert not any(answer[NONE].values())
