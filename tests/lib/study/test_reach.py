"""What patterns reach: against a search by hand, against the library's own gradients, and by the known formulas."""

from functools import partial

import pytest
import torch

from lib import masks
from lib.efficient import segmented_attention, strided_attention, windowed_attention
from lib.study import reach


def searched(pattern, i):
    """Breadth first from query i: token -> steps."""
    found, edge, step = {i: 0}, {i}, 0
    while edge:
        step += 1
        edge = {j for k in edge for j in pattern[k].nonzero().flatten().tolist()} - found.keys()
        found |= dict.fromkeys(edge, step)
    return found


@pytest.mark.parametrize("name", ["full", "window", "stride", "window + stride", "segments"])
def test_steps_are_those_of_a_search(name):
    pattern = reach.patterns(13, 4)[name]
    steps = reach.steps_apart(pattern)
    for i in range(13):
        found = searched(pattern, i)
        assert {j: int(steps[i, j]) for j in found} == found
        assert not steps[i, [j for j in range(13) if j not in found]].any()


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_after_so_many_layers_all_within_as_many_steps_is_seen(layers):
    pattern = reach.patterns(20, 3)["window"]
    steps = reach.steps_apart(pattern)
    near = (steps > 0) & (steps <= layers) | torch.eye(20, dtype=torch.bool)
    assert torch.equal(reach.after_layers(pattern, layers), near)


FORMS = {
    "window": partial(windowed_attention, window=4, is_causal=True),
    "stride": partial(strided_attention, stride=4, is_causal=True),
    "segments": partial(segmented_attention, segment=4, is_causal=True),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("layers", [1, 2])
def test_the_library_sees_what_the_pattern_says(name, layers):
    gradient = reach.gradient_at_the_end(FORMS[name], 21, layers)
    assert torch.equal(gradient > 0, reach.after_layers(reach.patterns(21, 4)[name], layers)[-1])


def test_links_of_a_row():
    made = reach.patterns(16, 4)
    assert reach.links_per_row("window", made["window"], 4).tolist() == [1, 2, 3] + [4] * 13
    assert reach.links_per_row("segments", made["segments"], 4)[-1] == 4 + 3
    assert torch.equal(reach.segments(16, 16), masks.causal(16))
