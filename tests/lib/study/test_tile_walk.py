"""The walk over tiles holds at each step what a softmax of the keys so far says, and its pictures show it."""

import matplotlib.pyplot as plt
import pytest
import torch

from lib import masks
from lib.study import tile_walk
from lib.study.tile_walk import CROSSED, DEAD, WHOLE


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def numbers(n=6):
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.randn(n, n, generator=generator), torch.randn(n, generator=generator)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tile", [1, 2, 3, 6])
def test_each_step_holds_the_softmax_of_the_keys_so_far(tile, causal):
    scores, values = numbers()
    hidden = scores.masked_fill(~masks.causal(6), -torch.inf) if causal else scores
    for step in tile_walk.walk(scores, values, tile, causal=causal):
        rows = slice(step.row * tile, (step.row + 1) * tile)
        seen = hidden[rows, : (step.column + 1) * tile]
        assert torch.equal(step.peak[rows], seen.amax(-1))
        torch.testing.assert_close(step.total[rows].log() + step.peak[rows], seen.logsumexp(-1))
        expected = seen.softmax(-1) @ values[: (step.column + 1) * tile]
        torch.testing.assert_close(step.output[rows] / step.total[rows], expected)


def test_a_dead_tile_changes_nothing_and_later_rows_hold_nothing():
    scores, values = numbers()
    steps = tile_walk.walk(scores, values, 2, causal=True)
    assert [step.kind for step in steps] == [CROSSED, DEAD, DEAD, WHOLE, CROSSED, DEAD, WHOLE, WHOLE, CROSSED]
    assert all(torch.equal(getattr(steps[1], name), getattr(steps[0], name)) for name in ("peak", "total", "output"))
    assert not steps[0].total[2:].any()


def texts(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def test_the_picture_of_the_walk_shows_what_the_rows_hold():
    scores, values = numbers()
    step = tile_walk.walk(scores, values, 2, causal=True)[3]
    shown = texts(tile_walk.draw_walk(scores, values, 2, 4, causal=True))
    assert "tile 4 of 9" in shown
    for i in (2, 3):
        assert f"{step.total[i]:.2f}" in shown
        assert f"{step.output[i] / step.total[i]:.2f}".replace("-", "−") in shown
    assert "tile 2 of 9: dead, skipped" in texts(tile_walk.draw_walk(scores, values, 2, 2, causal=True))
    assert texts(tile_walk.draw_walk(scores, values, 2, 0, causal=False)).count("−∞") == 6


def test_the_stream_marks_where_a_larger_score_comes():
    figure = tile_walk.draw_stream(torch.tensor([0.0, 1.0, 0.5, 2.0]))
    marked = figure.axes[1].lines[1]
    assert marked.get_xdata().tolist() == [2, 4]


def test_the_plan_has_a_patch_for_each_tile():
    figure = tile_walk.draw_plan(tiles=3)
    hatched = [patch for patch in figure.axes[0].patches if patch.get_hatch()]
    assert len(hatched) == 3 + 1  # and one in the legend
