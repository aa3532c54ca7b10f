"""Pictures of the chapter on heads: the cut of the width, who reaches whom, and the maps of all heads of a layer.

Shapes: H heads, L tokens.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from lib.study.plots import BLUE, COLORS, GRAY, GREEN, INK, ORANGE, PALE, VERMILION, arrow, box, drawing, heatmap


def cut_into_heads(heads: int = 4) -> Figure:
    """Multi-head attention from X to the output: project, cut, attend, join, project."""
    figure, ax = drawing(6.4, 6.1)
    colors = COLORS[:heads]
    x = box(ax, 3.55, 0.4, "X    (n, d_model)", width=2.4, color=GRAY)
    joined = {}
    for center, name in ((1.55, "Q = X·W_q"), (3.55, "K = X·W_k"), (5.55, "V = X·W_v")):
        _bar(ax, center, 1.45, 1.72, 0.5, colors)
        ax.text(center, 1.1, name, ha="center", va="center", fontsize=12)
        arrow(ax, x.top, (center, 0.98), color=GRAY)
        joined[name[0]] = center
    step, width = 1.5, 1.3
    for i, color in enumerate(colors):
        center = 3.55 + (i - (heads - 1) / 2) * step
        for middle in joined.values():
            arrow(ax, (middle + (i - (heads - 1) / 2) * 0.43, 1.72), (center, 2.62), color=color, width=1.0)
        head = box(ax, center, 3.0, f"head {i + 1}\n(n, n), (n, d)", width=width, height=0.72, color=color, fontsize=11)
        arrow(ax, head.top, (3.55 + (i - (heads - 1) / 2) * 0.75, 4.0), color=color)
    _bar(ax, 3.55, 4.26, 3.0, 0.5, colors)
    ax.text(5.2, 4.26, "(n, h·d)", ha="left", va="center", fontsize=12)
    output = box(ax, 3.55, 5.55, "output    (n, d_model)", width=2.6, color=GREEN)
    arrow(ax, (3.55, 4.52), output.bottom, "· W_o", above=False)
    for y, word in ((0.4, ""), (1.45, "cut"), (3.0, "attend"), (4.26, "join"), (5.0, "mix")):
        ax.text(0.02, y, word, ha="left", va="center", fontsize=12, weight="bold", color=GRAY)
    return figure


def _bar(ax, x: float, y: float, width: float, height: float, colors: Sequence[str]) -> None:
    """A matrix as a bar, its columns in the colors of the heads that own them."""
    each = width / len(colors)
    for i, color in enumerate(colors):
        ax.add_patch(Rectangle((x - width / 2 + i * each, y - height / 2), each, height, facecolor=color, edgecolor="white"))
        ax.text(
            x - width / 2 + (i + 0.5) * each, y, str(i + 1), ha="center", va="center", fontsize=11, color="black", weight="bold"
        )


def reach(influence: Tensor, title: str, names: tuple[str, str] = ("output token", "input token →")) -> Figure:
    """Which input token moves which output token: a dark cell is one that does, an empty one is none at all.

    Args:
        influence: (L, L) sizes of the gradients, 0 where there is no way.
    """
    n = len(influence)
    figure, ax = plt.subplots(figsize=(4.6, 4.2))
    ax.imshow((influence > 0).float(), cmap="Blues", vmin=0, vmax=1.25, aspect="equal")
    ax.set_xticks(range(n), range(1, n + 1))
    ax.set_yticks(range(n), range(1, n + 1))
    ax.set_xticks(np.arange(n + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(n + 1) - 0.5, minor=True)
    ax.grid(False)
    ax.grid(which="minor", color=PALE, linewidth=0.8)
    ax.tick_params(which="both", length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    ax.xaxis.set_label_position("top")
    ax.set(xlabel=names[1], ylabel=names[0])
    ax.spines[:].set_visible(False)
    ax.set_title(title, fontsize=13)
    return figure


def all_heads(weights: Tensor, words: Sequence[str], head: int, title: str) -> Figure:
    """One head of a layer large, with its words, and all heads of the layer small beside it.

    Args:
        weights: (H, L, L) of one layer and one sentence.
        words: the L tokens.
        head: the large one, counted from 1.
        title: above the large one.
    """
    figure = plt.figure(figsize=(7.0, 5.4))
    grid = figure.add_gridspec(len(weights), 2, width_ratios=(4.6, 1))
    large = figure.add_subplot(grid[:, 0])
    heatmap(weights[head - 1], words, words, ax=large, numbers=False, colorbar=False, row_name="", column_name="")
    large.set_xticks(range(len(words)), words, rotation=90, ha="center", va="bottom", rotation_mode="default")
    large.set_title(title, fontsize=13)
    for i, map_ in enumerate(weights):
        small = figure.add_subplot(grid[i, 1])
        small.imshow(map_, cmap="Blues", vmin=0, vmax=1)
        small.set(xticks=[], yticks=[])
        small.grid(False)
        chosen = i == head - 1
        small.spines[:].set(visible=True, color=VERMILION if chosen else PALE, linewidth=2.5 if chosen else 1)
        small.set_ylabel(f"{i + 1}", rotation=0, labelpad=9, va="center", color=INK, weight="bold" if chosen else "normal")
    return figure


def look_of_heads(trained, untrained, by_seed: bool = True) -> Figure:
    """Each head a point: how far it looks, and how widely. Seeds have a marker each, layers a color.

    Args:
        trained, untrained: tables with the columns seed, layer, distance, entropy.
    """
    figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.9), sharex=True, sharey=True)
    markers = "os^Dv"
    for ax, table, title in zip(axes, (untrained, trained), ("untrained", "trained"), strict=True):
        for k, (seed, of_seed) in enumerate(table.groupby("seed")):
            for layer, color in ((1, BLUE), (2, ORANGE)):
                part = of_seed[of_seed["layer"] == layer]
                ax.scatter(
                    part["distance"],
                    part["entropy"],
                    marker=markers[k % 5],
                    s=52,
                    color=color,
                    edgecolor="white",
                    linewidth=0.6,
                    label=f"layer {layer}" if seed == table["seed"].min() else None,
                )
        ax.set(xlabel="mean distance (tokens)", title=title)
    axes[0].set_ylabel("entropy (nats)")
    axes[1].legend(loc="lower right")
    return figure
