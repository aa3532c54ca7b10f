"""Pictures of a model that pronounces: which letters it looks at for each sound, and what else it might have said."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.study import plots
from lib.study.alternatives import Alternative

MOST_LETTERS = 14


def attention(weights, spelling: str, sounds: Sequence[str], *, ax: Axes | None = None, marks: Sequence[int] = ()) -> Axes:
    """A row for each sound, a column for each letter; white is a weight of 0, dark blue of 1.

    Args:
        weights: (L, S) with the rows of the sounds and their end, the columns of the letters and their end, or more.
        marks: for each sound the letter that an alignment names, drawn as a ring.
    """
    rows, columns = [*sounds, "end"], [*spelling, "end"]
    weights = np.asarray(weights)[: len(rows), : len(columns)]
    ax = plots.heatmap(
        weights,
        rows,
        columns,
        ax=ax,
        row_name="writes sound",
        column_name="looks at letter →",
        numbers=False,
        colorbar=False,
    )
    ax.tick_params(axis="x", rotation=0)
    for label in ax.get_xticklabels():
        label.set_horizontalalignment("center")
    ax.plot(
        list(marks), range(len(marks)), "o", markersize=13, markerfacecolor="none", color=plots.VERMILION, markeredgewidth=2
    )
    return ax


def percent(share: float) -> str:
    """A share as text: whole percent, and "<1%" for what would be rounded to 0."""
    return f"{share:.0%}" if share >= 0.005 else "<1%"


def pronounced(spelling: str, weights, found: Sequence[Alternative], most: int = 5) -> Figure:
    """For the explorer: the map of the best pronunciation, and the probabilities of the best few."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 4.4), width_ratios=(1.2, 1))
    attention(weights, spelling, found[0].sounds, ax=left)
    shares = [float(np.exp(one.log_prob)) for one in found[:most]]
    texts = [" ".join(one.sounds) for one in found[:most]]
    right.barh(range(len(shares)), shares, height=0.34, color=plots.BLUE)
    for i, (share, text) in enumerate(zip(shares, texts, strict=True)):
        right.text(0.0, i - 0.3, f"{text}  ({percent(share)})", ha="left", va="bottom", fontsize=_size(text))
    right.set(xlim=(0, 1), ylim=(most - 0.5, -0.8), xlabel="probability", yticks=[])
    right.grid(axis="y", visible=False)
    right.set_title("alternatives")
    return figure


def nothing(text: str) -> Figure:
    """A sheet that says why there is no picture."""
    figure, ax = plots.drawing(7.6, 4.4)
    ax.text(3.8, 2.2, text, ha="center", va="center", fontsize=14, wrap=True)
    return figure


def _size(text: str) -> int:
    return 11 if len(text) <= 30 else 9
