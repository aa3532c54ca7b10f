"""Pictures of masks show every cell, and the sums that rows have."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from lib import masks
from lib.study import mask_pictures, plots


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def filled(ax):
    """The cells of the first grid in the axes that have a color, (row, column)."""
    return {(i, j) for i, j in np.argwhere(np.asarray(ax.collections[0].get_array()))}


def test_the_filled_cells_are_those_that_may_attend():
    mask = masks.causal(2, 4)
    _, ax = plt.subplots()
    mask_pictures.cells(ax, mask, "causal")
    assert filled(ax) == {(i, j) for i, j in mask.nonzero().tolist()}
    [dots] = ax.lines
    assert set(zip(dots.get_ydata(), dots.get_xdata(), strict=True)) == {(i, j) for i, j in (~mask).nonzero().tolist()}
    assert ax.collections[0].get_cmap()(1.0)[:3] == to_rgb(plots.BLUE)
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # row 0 on top


def test_a_gallery_has_an_axis_for_each_mask_under_its_name():
    figure = mask_pictures.gallery({"one": masks.causal(3), "two": masks.strided(4, 2)}, columns=3)
    assert [ax.get_title(loc="left") or ax.get_title() for ax in figure.axes] == ["one", "two", ""]
    assert len(filled(figure.axes[1])) == int(masks.strided(4, 2).sum())


def test_the_steps_show_minus_infinity_where_the_mask_forbids():
    scores, mask = torch.randn(4, 4), masks.causal(4)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    figure = mask_pictures.masked_softmax(scores, mask, weights, list("abcd"))
    texts = [[text.get_text() for text in ax.texts] for ax in figure.axes]
    assert texts[0].count("−∞") == 0
    assert texts[1].count("−∞") == 6
    assert texts[2].count("0.00") == 6


def test_rows_without_a_key_are_marked_with_their_sum():
    mask = torch.tensor([[True, False], [False, False]])
    weights = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    figure = mask_pictures.weights_and_sums(mask, weights, ["a", "b"], ["a", "b"])
    sums = [text for text in figure.axes[1].texts if text.get_position()[0] > 1.5]
    assert [text.get_text() for text in sums] == ["1", "0"]
    assert [text.get_weight() for text in sums] == ["normal", "bold"]


def test_a_small_weight_that_is_allowed_does_not_read_as_zero():
    mask = torch.ones(1, 3, dtype=torch.bool)
    weights = torch.tensor([[0.001, 0.03, 0.969]])
    figure = mask_pictures.weights_and_sums(mask, weights, ["a"], ["a", "b", "c"])
    shown = [text.get_text() for text in figure.axes[1].texts if text.get_position()[0] < 2.5]
    assert shown == ["<.01", ".03", ".97"]


def test_names_of_lines_stay_apart_and_in_order():
    _, ax = plt.subplots()
    ends = {"low": 0.30, "high": 0.9, "middle": 0.32}
    mask_pictures.label_ends(ax, ends, dict.fromkeys(ends, "black"), at=1.0, gap=0.1)
    heights = {text.get_text(): text.get_position()[1] for text in ax.texts}
    assert heights["high"] == 0.9
    assert heights["middle"] == 0.32
    assert heights["low"] == pytest.approx(0.22)
