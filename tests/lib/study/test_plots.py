"""Figures of the book: one look, honest colors, compact and reproducible pictures."""

from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from PIL import Image

from lib.study import plots

TOKENS = ["the", "cat", "sat"]
WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])


@pytest.fixture(autouse=True)
def _style():
    with plt.rc_context():
        plots.use_style()
        yield
    plt.close("all")


def luminance(color) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in plt.matplotlib.colors.to_rgb(color)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(one, other) -> float:
    """As in WCAG 2: 4.5 and more for letters, 3 and more for marks."""
    light, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(png)).convert("RGBA"), dtype=int)


def curve():
    figure, ax = plt.subplots()
    plots.line_with_spread(ax, [1, 2, 3], [[1, 2, 3], [2, 2, 5]], "two seeds")
    ax.set(xlabel="n", ylabel="accuracy")
    ax.legend()
    return figure


def test_figures_are_opaque_and_white_with_dark_letters():
    picture = pixels(plots.to_png(curve()))
    assert (picture[..., 3] == 255).all()
    assert (picture[0, 0, :3] == 255).all()
    for name in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color"):
        assert contrast(plt.rcParams[name], "white") > 7
    assert contrast(plots.GRAY, "white") > 4.5


def test_lines_differ_in_dash_as_well_as_in_color():
    cycle = list(plt.rcParams["axes.prop_cycle"])
    assert len(cycle) == len({str(line["linestyle"]) for line in cycle}) == len({line["color"] for line in cycle}) == 6


def test_a_figure_drawn_again_gives_the_same_bytes_and_no_version_is_in_them():
    picture = plots.to_png(curve())
    assert picture == plots.to_png(curve())
    assert b"atplotlib" not in picture


def test_a_palette_is_smaller_and_nobody_sees_it():
    compact, full = plots.to_png(curve()), BytesIO()
    curve().savefig(full, dpi=plots.DPI)
    assert Image.open(BytesIO(compact)).mode == "P"
    assert len(compact) < 0.5 * len(full.getvalue())
    moved = np.abs(pixels(compact) - pixels(full.getvalue())).max(axis=-1)
    assert np.quantile(moved, 0.999) <= 12
    assert moved.mean() < 0.5


@pytest.mark.parametrize("side", [80, 240])
def test_a_picture_that_needs_many_colors_keeps_them(side):
    figure = plt.figure(figsize=(2, 2))
    figure.figimage(np.random.default_rng(0).random((side, side, 3)))
    assert Image.open(BytesIO(plots.to_png(figure))).mode == "RGB"


def test_dpi_sets_the_size_in_pixels():
    figure = plt.figure(figsize=(3, 2))
    assert Image.open(BytesIO(plots.to_png(figure, dpi=50))).size == (150, 100)


def test_a_heatmap_shows_each_weight_in_its_cell_under_its_tokens():
    ax = plots.heatmap(torch.tensor(WEIGHTS, requires_grad=True), TOKENS, ["a", "b", "c"], title="Who looks where")
    assert [label.get_text() for label in ax.get_yticklabels()] == TOKENS
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b", "c"]
    written = {text.get_position(): text.get_text() for text in ax.texts}
    assert written == {(j, i): f"{WEIGHTS[i, j]:.2f}" for i in range(3) for j in range(3)}
    assert ax.images[0].get_clim() == (0, 1)
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("query", "attends to key →")
    assert [other.get_ylabel() for other in ax.figure.axes if other is not ax] == ["weight"]


@pytest.mark.parametrize(("colormap", "limits"), [("Blues", (0, 1)), ("PuOr", (-1, 1)), ("viridis", (0, 1)), ("Greys", (0, 1))])
def test_numbers_stand_out_from_their_cell_whatever_its_color(colormap, limits):
    values = np.linspace(*limits, 64).reshape(8, 8)
    ax = plots.heatmap(values, range(8), range(8), limits=limits, colormap=colormap)
    for text, value in zip(ax.texts, values.flat, strict=True):
        assert contrast(ax.images[0].to_rgba(value), text.get_color()) >= 4.5


def test_a_large_heatmap_leaves_the_numbers_out():
    assert len(plots.heatmap(np.zeros((8, 8)), range(8), range(8)).texts) == 64
    assert len(plots.heatmap(np.zeros((8, 9)), range(8), range(9)).texts) == 0
    assert len(plots.heatmap(np.zeros((8, 9)), range(8), range(9), numbers=True).texts) == 72


def test_a_heatmap_draws_into_given_axes_and_leaves_its_input_alone():
    _, ax = plt.subplots()
    weights = WEIGHTS.copy()
    assert plots.heatmap(weights, TOKENS, TOKENS, ax=ax, colorbar=False) is ax
    assert ax.figure.axes == [ax]
    np.testing.assert_array_equal(weights, WEIGHTS)


def test_a_heatmap_refuses_what_it_would_show_wrongly():
    with pytest.raises(ValueError, match=r"\(1, 1, 3, 3\) do not fit 3 rows and 3 columns.*weights\[0, 0\]"):
        plots.heatmap(np.zeros((1, 1, 3, 3)), TOKENS, TOKENS)
    with pytest.raises(ValueError, match=r"\(3, 3\) do not fit 3 rows and 2 columns"):
        plots.heatmap(WEIGHTS, TOKENS, TOKENS[:2])
    with pytest.raises(ValueError, match=r"-2 … 5 leave the color limits 0 … 1"):
        plots.heatmap([[-2, 5]], ["q"], ["a", "b"])
    with pytest.raises(ValueError, match="nan"):
        plots.heatmap([[np.nan, 1]], ["q"], ["a", "b"])


def test_a_line_with_spread_is_the_mean_with_the_range_of_the_seeds():
    _, ax = plt.subplots()
    runs = np.array([[1.0, 5.0, 3.0], [2.0, 1.0, 3.0], [6.0, 3.0, 3.0]])
    plots.line_with_spread(ax, [1, 2, 4], runs, "three seeds")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [3, 3, 3])
    assert ax.lines[0].get_label() == "three seeds"
    outline = ax.collections[0].get_paths()[0].vertices
    for x, low, high in [(1, 1, 6), (2, 1, 5), (4, 3, 3)]:
        assert {y for at, y in outline if at == x} == {low, high}


def test_a_single_run_has_no_band():
    _, ax = plt.subplots()
    plots.line_with_spread(ax, [1, 2], [[1, 2]], "one seed")
    assert not ax.collections


@pytest.mark.parametrize("runs", [[1.0, 2.0], [[1.0, 2.0, 3.0]], np.zeros((0, 2)), np.zeros((2, 2, 2))])
def test_runs_of_another_shape_are_refused(runs):
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match=r"runs must be \(seeds, n = 2\).*got shape \("):
        plots.line_with_spread(ax, [1, 2], runs, "wrong")


def test_arrows_meet_the_boxes_edges_and_texts_stay_inside():
    figure, ax = plots.drawing(6, 2)
    first = plots.box(ax, 1, 1, "query", width=1.2, height=0.5)
    second = plots.box(ax, 4, 1, "keys", width=1.2, height=0.5, color=plots.ORANGE)
    plots.arrow(ax, first.right, second.left, "match")
    assert first == plots.Box(left=(0.4, 1), right=(1.6, 1), top=(1, 1.25), bottom=(1, 0.75))
    figure.draw_without_rendering()
    for text, (left, right) in zip(ax.texts, [(0.4, 1.6), (3.4, 4.6), (1.6, 3.4)], strict=True):
        extent = text.get_window_extent().transformed(ax.transData.inverted())
        assert left < extent.x0 < extent.x1 < right


def test_letters_stand_out_from_every_box():
    _, ax = plots.drawing(6, 2)
    for color in (*plots.COLORS, plots.GRAY, plots.YELLOW):
        plots.box(ax, 1, 1, "x", color=color)
        assert contrast(ax.patches[-1].get_facecolor(), plots.INK) > 7


def test_a_drawing_is_measured_in_inches():
    figure, ax = plots.drawing(6, 2)
    assert Image.open(BytesIO(plots.to_png(figure, dpi=100))).size == (600, 200)
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 6), (0, 2))
