"""Pictures of masks: who may attend to whom, a row for each query and a column for each key, read like a table.

A link that is allowed is a filled cell, one that is not an empty cell with a dot: color alone carries no meaning.
"""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from lib.study import plots


def cells(
    ax: Axes,
    mask: Tensor,
    title: str = "",
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    color: str = plots.BLUE,
    fontsize: float = 11,
) -> None:
    """Draw one mask.

    Args:
        mask: (L, S) boolean, True = may attend.
        rows, columns: L and S labels; the positions 0, 1, 2, … when not given.
    """
    L, S = mask.shape
    edges = np.arange(S + 1) - 0.5, np.arange(L + 1) - 0.5
    ax.pcolormesh(
        *edges, _array(mask), cmap=ListedColormap(["white", color]), vmin=0, vmax=1, edgecolors=plots.PALE, linewidth=1.6
    )
    hidden = (~mask).nonzero()
    ax.plot(hidden[:, 1], hidden[:, 0], ".", color=plots.GRAY, markersize=3)
    ax.set(xlim=(-0.6, S - 0.4), ylim=(L - 0.4, -0.6), aspect="equal")
    ax.set_xticks(range(S), range(S) if columns is None else columns, fontsize=fontsize)
    ax.set_yticks(range(L), range(L) if rows is None else rows, fontsize=fontsize)
    ax.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0, pad=1)
    ax.spines[:].set_visible(False)
    ax.grid(False)
    ax.set_title(title, fontsize=12)


def gallery(masks: Mapping[str, Tensor], columns: int = 3, *, size: float = 2.15) -> Figure:
    """Several masks (L, S) beside each other, each under its name.

    Args:
        masks: name -> mask.
        columns: in one line of the picture.
        size: of one mask, in inches.
    """
    lines = -(-len(masks) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(columns * size, lines * (size + 0.35)), squeeze=False)
    for ax in axes.flat[len(masks) :]:
        ax.axis("off")
    for ax, (name, mask) in zip(axes.flat, masks.items(), strict=False):
        cells(ax, mask, name)
        ax.set_ylabel("query", fontsize=11, color=plots.GRAY)
        ax.set_xlabel("key", fontsize=11, color=plots.GRAY)
        ax.xaxis.set_label_position("bottom")
    return figure


def masked_softmax(scores: Tensor, mask: Tensor, weights: Tensor, words: Sequence[str]) -> Figure:
    """The three steps: scores (n, n), −∞ where the mask (n, n) forbids, weights (n, n)."""
    figure, axes = plt.subplots(1, 3, figsize=(6.6, 2.9))
    limit = float(scores.abs().max())
    steps = (
        ("scores", scores, "PuOr", (-limit, limit), np.ones(mask.shape, dtype=bool)),
        ("masked", scores, "PuOr", (-limit, limit), _array(mask)),
        ("weights", weights, "Blues", (0.0, 1.0), np.ones(mask.shape, dtype=bool)),
    )
    for ax, (title, values, colormap, limits, shown) in zip(axes, steps, strict=True):
        plots.heatmap(
            values, words, words, ax=ax, title=title, limits=limits, colormap=colormap,
            row_name="query" if ax is axes[0] else "", column_name="key",
            numbers=False, colorbar=False,
        )  # fmt: skip
        for (i, j), value in np.ndenumerate(_array(values)):
            if shown[i, j]:
                ink = plots._ink_on(ax.images[0].to_rgba(value))
                text = f"{value:.1f}" if title != "weights" else f"{value:.2f}"
            else:
                ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="white", edgecolor=plots.PALE, hatch="///"))
                ink, text = "black", "−∞"
            box = None if shown[i, j] else {"facecolor": "white", "edgecolor": "none", "pad": 1}
            ax.text(j, i, text.replace("-", "−"), ha="center", va="center", color=ink, fontsize=11, bbox=box)
        if ax is not axes[0]:
            ax.set_yticklabels([])
    return figure


def weights_and_sums(mask: Tensor, weights: Tensor, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """A mask beside the weights that it leaves, and what each row of weights sums to. Mask and weights are (L, S)."""
    figure = plt.figure(figsize=(6.2, 3.1))
    figure.set_layout_engine("none")  # placed by hand: many such pictures are drawn at once
    left, right = (figure.add_axes((x, 0.03, 0.41, 0.78)) for x in (0.09, 0.53))
    cells(left, mask, "the mask", rows=rows, columns=columns)
    cells(right, mask, "weights, row sums", rows=[""] * len(rows), columns=columns, color="white")
    right.pcolormesh(
        np.arange(len(columns) + 1) - 0.5, np.arange(len(rows) + 1) - 0.5, _array(weights), cmap="Blues", vmin=0, vmax=1,
        alpha=_array(mask).astype(float), edgecolors=plots.PALE, linewidth=0.8,
    )  # fmt: skip
    left.set_ylabel("query", color=plots.GRAY)
    shade = plt.get_cmap("Blues")
    for i, j in mask.nonzero().tolist():
        value = weights[i, j].item()
        text = "1" if value >= 0.995 else "<.01" if value < 0.005 else f"{value:.2f}".lstrip("0")
        right.text(j, i, text, ha="center", va="center", color=plots._ink_on(shade(value)), fontsize=9.5)
    for i, total in enumerate(weights.sum(dim=-1).tolist()):
        empty = round(total) == 0
        right.text(
            len(columns) - 0.35, i, f"{total:.0f}", ha="left", va="center", fontsize=12,
            weight="bold" if empty else "normal", color=plots.VERMILION if empty else plots.INK,
        )  # fmt: skip
    return figure


def label_ends(ax: Axes, ends: Mapping[str, float], colors: Mapping[str, str], *, at: float, gap: float = 0.085) -> None:
    """Name lines at their right ends, in their colors, and keep the names apart.

    Args:
        ends: name -> height of the line's end.
        colors: name -> color.
        at: where the names begin, in units of the horizontal axis.
        gap: the least distance between two names, in units of the vertical axis.
    """
    names = sorted(ends, key=ends.get, reverse=True)
    heights = [ends[name] for name in names]
    for i in range(1, len(heights)):
        heights[i] = min(heights[i], heights[i - 1] - gap)
    for name, height in zip(names, heights, strict=True):
        ax.text(at, height, name, color=colors[name], va="center", fontsize=12, weight="bold")


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.numpy()
