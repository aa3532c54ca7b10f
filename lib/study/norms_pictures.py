"""Pictures of residual and norm: where they stand, how large gradients are over the layers, and which rates train.

Figures are about 6.5 inches wide at most, so that they can be read on a narrow page.
"""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lib.study import plots
from lib.study.norms import ARRANGEMENTS, UNIFORM

STYLES = dict(zip(ARRANGEMENTS, zip(plots.COLORS, plots.DASHES, "osD^v", strict=False), strict=True))


def sub_layers() -> Figure:
    """Two sub-layers in post-norm and in pre-norm order, the way that nothing but sums stands on as a bold line."""
    figure, ax = plots.drawing(6.4, 6.2)
    _post(ax, 1.9)
    _pre(ax, 4.9)
    return figure


def _post(ax: Axes, x: float) -> None:
    ax.text(x, 5.95, "post-norm", ha="center", va="center", fontsize=14, weight="bold")
    ends = _column(ax, x, ("attention", "+", "norm 1", "feed-forward", "+", "norm 2"))
    _bypass(ax, x, ends[0], ends[1], 0.1)
    _bypass(ax, x, ends[3], ends[4], 0.0)


def _pre(ax: Axes, x: float) -> None:
    ax.text(x, 5.95, "pre-norm", ha="center", va="center", fontsize=14, weight="bold")
    ends = _column(ax, x, ("norm 1", "attention", "+", "norm 2", "feed-forward", "+"))
    _bypass(ax, x, ends[0], ends[2], 0.1)
    _bypass(ax, x, ends[3], ends[5], 0.0)


def _column(ax: Axes, x: float, parts: tuple[str, ...]) -> list[float]:
    """Boxes from the bottom up, joined by arrows. Returns the heights of their centers."""
    heights = [1.0 + 0.85 * i for i in range(len(parts))]
    below = (x, 0.15)
    ax.text(x + 0.12, 0.22, "x", fontsize=13, style="italic")
    for part, y in zip(parts, heights, strict=True):
        color = plots.ORANGE if part.startswith("norm") else plots.GRAY if part == "+" else plots.SKY
        width = 0.42 if part == "+" else 1.45
        made = plots.box(ax, x, y, part, width=width, height=0.42, color=color, fontsize=12)
        plots.arrow(ax, below, made.bottom)
        below = made.top
    plots.arrow(ax, below, (x, below[1] + 0.4))
    return heights


def _bypass(ax: Axes, x: float, first: float, plus: float, lower: float) -> None:
    """The residual: from below a part, around it, into the sum."""
    start, side = first - 0.43 - lower, x - 1.15
    line = {"color": plots.VERMILION, "linewidth": 3, "linestyle": "-", "solid_capstyle": "round"}
    ax.plot([x, side, side], [start, start, plus], **line)
    plots.arrow(ax, (side, plus), (x - 0.2, plus), color=plots.VERMILION, width=3)


def layer_lines(
    found: Mapping[str, np.ndarray],
    x: np.ndarray,
    *,
    title: str,
    x_name: str,
    y_name: str = "norm of the gradient",
    log: bool = True,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """A line for each arrangement.

    Args:
        found: arrangement -> (seeds, n) norms of gradients.
        x: (n,) layers or depths.
        title, x_name, y_name: of the picture and of its axes.
        log: whether the upright axis is logarithmic.
        limits: of the upright axis.
    """
    figure, ax = plt.subplots(figsize=(6.4, 4.6))
    for arrangement, runs in found.items():
        color, dashes, marker = STYLES[arrangement]
        style = {"color": color, "linestyle": dashes, "marker": marker, "markersize": 6}
        plots.line_with_spread(ax, x, runs, arrangement, **style)
    ax.set(yscale="log" if log else "linear", xlabel=x_name, ylabel=y_name, title=title, ylim=limits)
    if len(x) <= 7:  # few enough to name them all
        ax.set_xticks(x)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def rate_maps(bits: pd.DataFrame, arrangements: tuple[str, ...], low: float, failing: float) -> Figure:
    """A table of colors for each arrangement: a row for each depth, a column for each rate, the bits per letter inside.

    Args:
        bits: index (arrangement, depth), columns rates; empty cells were not tried.
        low: bits of the palest color; the darkest one stands for a guess that knows nothing.
        failing: from here on a run counts as failed, and its number stands in bold with a cross.
    """
    depths = bits.index.unique("depth")
    figure, panels = plt.subplots(len(arrangements), 1, figsize=(6.6, 1.15 + len(arrangements) * (0.5 * len(depths) + 0.9)))
    for ax, arrangement in zip(np.atleast_1d(panels), arrangements, strict=True):
        values = bits.loc[arrangement].reindex(depths).to_numpy()
        ax.imshow(values, cmap="Blues", vmin=low, vmax=UNIFORM, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            lost = value > failing
            text = "" if np.isnan(value) else f"{value:.2f}" + (" ×" if lost else "")
            ax.text(j, i, text, ha="center", va="center", color="black", weight="bold" if lost else "normal")
        ax.set_xticks(range(bits.shape[1]), [f"{1e3 * rate:g}" for rate in bits.columns])
        ax.set_yticks(range(len(depths)), depths)
        ax.set(title=arrangement, ylabel="layers")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.grid(False)
    ax.set_xlabel("learning rate, in thousandths")
    return figure
