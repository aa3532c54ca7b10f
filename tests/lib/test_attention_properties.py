"""Properties of attention over random inputs, and the proof that they can fail: wrong attentions that they must tell."""

from functools import partial

import pytest
import torch
from hypothesis import Phase, given

from lib.attention import scaled_dot_product_attention as attention
from tests.lib.faults import FAULTS, faulty_attention
from tests.lib.properties import PROPERTIES, Problem, examine, problems
from tests.lib.reference import assert_close


def ours(backend: str, device: str):
    """The library's function in the form that `properties` asks for."""

    def attend(query, key, value, mask=None, **options):
        inputs = [None if x is None else x.to(device) for x in (query, key, value, mask)]
        return attention(*inputs, enable_gqa=query.size(1) != key.size(1), backend=backend, **options).cpu()

    return attend


@pytest.mark.parametrize("holds", PROPERTIES.values(), ids=PROPERTIES)
def test_holds_for_every_backend(holds, backend, device):
    examine(holds, ours(backend, device))


@given(problem=problems())
def test_same_numbers_as_torch_over_masks_causality_widths_groups_and_scale(backend, device, problem: Problem):
    """Everything that torch's function accepts; a mask together with `is_causal` it refuses."""
    query, key, value, mask = (None if x is None else x.to(device) for x in problem.inputs)
    grouped = query.size(1) != key.size(1)
    options = problem.options | {"is_causal": problem.is_causal and mask is None, "enable_gqa": grouped}
    theirs = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, **options)
    assert_close(attention(query, key, value, mask, backend=backend, **options), theirs)


@pytest.mark.parametrize("holds", PROPERTIES.values(), ids=PROPERTIES)
def test_holds_for_a_right_attention_written_another_way(holds):
    examine(holds, partial(faulty_attention, "no fault"))


@pytest.mark.parametrize(("fault", "name"), [(fault, name) for fault, names in FAULTS.items() for name in names])
def test_finds_the_planted_fault(fault, name):
    with pytest.raises(AssertionError):  # the first example will do: no search for a smaller one
        examine(PROPERTIES[name], partial(faulty_attention, fault), phases=[Phase.generate], report_multiple_bugs=False)


def test_every_property_finds_some_fault():
    assert set(PROPERTIES) == {name for names in FAULTS.values() for name in names}
