"""Pictures of residual and norm show what they are given."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from lib.study import norms_pictures, plots
from lib.study.norms import ARRANGEMENTS


@pytest.fixture(autouse=True)
def style():
    plots.use_style()
    yield
    plt.close("all")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_the_order_of_the_sub_layers_is_drawn_from_the_bottom_up():
    (ax,) = norms_pictures.sub_layers().axes
    columns = {"post-norm": [], "pre-norm": []}
    for text in ax.texts:
        x, y = text.get_position()
        columns["post-norm" if x < 3.2 else "pre-norm"].append((y, text.get_text()))
    orders = {name: [text for _, text in sorted(column)] for name, column in columns.items()}
    assert orders["post-norm"] == ["x", "attention", "+", "norm 1", "feed-forward", "+", "norm 2", "post-norm"]
    assert orders["pre-norm"] == ["x", "norm 1", "attention", "+", "norm 2", "feed-forward", "+", "pre-norm"]
    assert {line.get_linestyle() for line in ax.lines} == {"-"}


def test_each_residual_ends_at_a_sum():
    (ax,) = norms_pictures.sub_layers().axes
    sums = {text.get_position()[1] for text in ax.texts if text.get_text() == "+"}
    assert len(ax.lines) == 4
    assert {line.get_ydata()[-1] for line in ax.lines} == sums


def test_every_arrangement_has_a_line_a_color_and_a_mark_of_its_own():
    found = {arrangement: np.full((3, 4), 10.0**i) for i, arrangement in enumerate(ARRANGEMENTS)}
    figure = norms_pictures.layer_lines(found, np.arange(4), title="t", x_name="layer", limits=(1e-3, 1e6))
    (ax,) = figure.axes
    assert ax.get_yscale() == "log"
    assert ax.get_ylim() == (1e-3, 1e6)
    assert [line.get_ydata()[0] for line in ax.lines] == [1, 10, 100, 1000, 10000]
    for look in ("get_color", "get_linestyle", "get_marker"):
        assert len({getattr(line, look)() for line in ax.lines}) >= len(ARRANGEMENTS) - (look == "get_linestyle")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(ARRANGEMENTS)


def test_a_map_writes_bits_marks_failures_and_leaves_what_was_not_tried_blank():
    index = pd.MultiIndex.from_product([["pre-norm", "post-norm"], [2, 6]], names=["arrangement", "depth"])
    bits = pd.DataFrame([[3.5, 4.0], [3.6, np.nan], [4.2, 3.7], [4.3, 3.8]], index=index, columns=[0.001, 0.002])
    first, second = norms_pictures.rate_maps(bits, ("pre-norm", "post-norm"), low=3.4, failing=4.1).axes
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("pre-norm", "post-norm")
    assert texts(first) == ["3.50", "4.00", "3.60", ""]
    assert texts(second) == ["4.20 ×", "3.70", "4.30 ×", "3.80"]
    assert [label.get_text() for label in second.get_xticklabels()] == ["1", "2"]
    assert [label.get_text() for label in second.get_yticklabels()] == ["2", "6"]
