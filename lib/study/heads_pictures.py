"""Pictures of the chapter on heads: the cut of the width, who reaches whom, and the maps of all heads of a layer.

Shapes: H heads, L tokens.
"""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from lib.study.plots import BLUE, COLORS, GRAY, GREEN, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, arrow, box, drawing


def cut_into_heads(heads: int = 4) -> Figure:
    """Multi-head attention from X to the output: project, cut, attend, join, mix."""
    figure, ax = drawing(6.8, 6.1)
    middle, colors = 3.85, COLORS[:heads]
    places = [i - (heads - 1) / 2 for i in range(heads)]  # of the heads, around 0
    x = box(ax, middle, 0.4, "X    (n, d_model)", width=2.4, color=GRAY)
    bars = []
    for center, name in ((1.9, "Q = X·W_q"), (middle, "K = X·W_k"), (5.8, "V = X·W_v")):
        bars.append(center)
        _bar(ax, center, 1.52, 1.64, colors)
        ax.text(center, 1.1, name, ha="center", va="center", fontsize=12)
        arrow(ax, x.top, (center, 0.96), color=GRAY)
    for i, (place, color) in enumerate(zip(places, colors, strict=True), start=1):
        head = box(
            ax,
            middle + 1.42 * place,
            3.0,
            f"head {i}\nweights (n, n)\noutput (n, d)",
            width=1.32,
            height=0.9,
            color=color,
            fontsize=10,
        )
        for center in bars:
            arrow(ax, (center + 0.41 * place, 1.78), head.bottom, color=color, width=1.0)
        arrow(ax, head.top, (middle + 0.75 * place, 3.98), color=color)
    _bar(ax, middle, 4.26, 3.0, colors)
    ax.text(5.45, 4.26, "(n, h·d)", ha="left", va="center", fontsize=12)
    output = box(ax, middle, 5.6, "output    (n, d_model)", width=2.6, color=GREEN)
    arrow(ax, (middle, 4.54), output.bottom, "· W_o", above=False)
    for y, word in ((0.98, "project"), (1.52, "cut"), (3.0, "attend"), (4.26, "join"), (5.0, "mix")):
        ax.text(0.1, y, word, ha="left", va="center", fontsize=12, weight="bold", color=GRAY)
    return figure


def _bar(ax, x: float, y: float, width: float, colors: Sequence[str], height: float = 0.5) -> None:
    """A matrix as a bar, its columns in the colors of the heads that own them."""
    each = width / len(colors)
    for i, color in enumerate(colors):
        left = x - width / 2 + i * each
        ax.add_patch(Rectangle((left, y - height / 2), each, height, facecolor=color, edgecolor="white"))
        ink = "black" if color in (ORANGE, SKY, PURPLE) else "white"
        ax.text(left + each / 2, y, str(i + 1), ha="center", va="center", fontsize=12, color=ink, weight="bold")


def reach(influence: Tensor, title: str, names: tuple[str, str] = ("output token", "input token →")) -> Figure:
    """Which input token moves which output token: a dark cell is one that does, an empty one is none at all.

    Args:
        influence: (L, L) sizes of the gradients, 0 where there is no way.
    """
    n = len(influence)
    figure, ax = plt.subplots(figsize=(4.6, 4.2))
    ax.imshow((influence > 0).float().numpy(), cmap="Blues", vmin=0, vmax=1.25, interpolation="nearest")
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


def landing(owner: Tensor, title: str) -> Figure:
    """In which head each number of the input lands: a row is a word, a column one of its numbers, the color is the head.

    Args:
        owner: (L, width) the number of the head, from 1.
    """
    n, width = owner.shape
    figure, ax = plt.subplots(figsize=(4.6, 4.2))
    ax.set(xlim=(0.5, width + 0.5), ylim=(n + 0.5, 0.5), xlabel="column →", ylabel="← word", title=title)
    for word, row in enumerate(owner.tolist(), start=1):
        for column, head in enumerate(row, start=1):
            color = COLORS[(head - 1) % len(COLORS)]
            ax.add_patch(Rectangle((column - 0.5, word - 0.5), 1, 1, facecolor=color, edgecolor="white"))
            ink = "black" if color in (ORANGE, SKY, PURPLE) else "white"
            ax.text(column, word, str(head), ha="center", va="center", fontsize=11, color=ink)
    ax.set_xticks(range(1, width + 1))
    ax.set_yticks(range(1, n + 1))
    ax.grid(False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return figure


def signs(phrase: str) -> list[str]:
    """The tokens of a phrase for the edge of a picture: markers of start and end, letters, and a sign for the space."""
    return ["⊢", *phrase.replace(" ", "␣"), "⊣"]


def all_heads(weights: Tensor, tokens: Sequence[str], head: int, title: str) -> Figure:
    """One head of a layer large, with its tokens, and all heads of the layer small beside it.

    Args:
        weights: (H, L, L) of one layer and one phrase.
        tokens: the L tokens, as short signs.
        head: the large one, counted from 1.
        title: above the large one.
    """
    figure = plt.figure(figsize=(6.4, 5.3))
    grid = figure.add_gridspec(len(weights), 2, width_ratios=(4.4, 1))
    large = figure.add_subplot(grid[:, 0])
    large.imshow(weights[head - 1].numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    large.set_xticks(range(len(tokens)), tokens, fontsize=11)
    large.set_yticks(range(len(tokens)), tokens, fontsize=11)
    large.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False, pad=2)
    large.grid(False)
    large.spines[:].set(visible=True, color=PALE)
    large.xaxis.set_label_position("top")
    large.set(xlabel="looks at →", ylabel="← letter that asks")
    large.set_title(title, fontsize=14)
    for i, weights_of_head in enumerate(weights, start=1):
        small = figure.add_subplot(grid[i - 1, 1])
        small.imshow(weights_of_head.numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        small.set(xticks=[], yticks=[])
        small.grid(False)
        small.spines[:].set(visible=True, color=VERMILION if i == head else PALE, linewidth=2.5 if i == head else 1)
        small.set_ylabel(str(i), rotation=0, labelpad=10, va="center", weight="bold" if i == head else "normal")
    return figure


def beside(layers: Mapping[str, Tensor]) -> Figure:
    """All heads of several layers, a layer in each row; rows and columns of a map are the tokens of one phrase.

    Args:
        layers: name -> weights (H, L, L). A gray line marks each token's own place.
    """
    heads = len(next(iter(layers.values())))
    figure, axes = plt.subplots(len(layers), heads, figsize=(6.6, 1.75 * len(layers) + 0.4), squeeze=False)
    for i in range(heads):
        axes[0, i].set_title(f"head {i + 1}", fontsize=13)
    for row, (name, maps) in zip(axes, layers.items(), strict=True):
        for ax, weights in zip(row, maps, strict=True):
            last = len(weights) - 1
            ax.imshow(weights.numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
            ax.plot([0, last], [0, last], color=GRAY, linewidth=0.6, linestyle="-")
            ax.set(xticks=[], yticks=[])
            ax.grid(False)
            ax.spines[:].set(visible=True, color=PALE)
        row[0].set_ylabel(name, fontsize=12)
    return figure


def look_of_heads(untrained: pd.DataFrame, trained: pd.DataFrame, uniform: pd.Series) -> Figure:
    """Each head a point: how far it looks, and how widely. A seed is a marker, a layer a color.

    Args:
        untrained, trained: the columns seed, layer, distance and entropy, a row for each head.
        uniform: distance and entropy of a head that weighs all tokens alike, drawn as a cross.
    """
    figure, axes = plt.subplots(1, 2, figsize=(6.6, 3.8), sharex=True, sharey=True)
    for ax, table, title in zip(axes, (untrained, trained), ("untrained", "trained"), strict=True):
        ax.plot(uniform["distance"], uniform["entropy"], "x", color=INK, markersize=11, markeredgewidth=2, label="all alike")
        for layer, color in ((1, BLUE), (2, ORANGE)):
            for seed, marker in zip(sorted(table["seed"].unique()), "os^Dv", strict=False):
                part = table[(table["layer"] == layer) & (table["seed"] == seed)]
                label = f"layer {layer}, seed {seed}"
                ax.scatter(
                    part["distance"], part["entropy"], 60, "none", marker=marker, edgecolor=color, linewidth=1.6, label=label
                )
        ax.set(xlabel="mean distance (letters)", title=title, xlim=(0, 10), ylim=(0, 3.7))
    axes[0].set_ylabel("entropy (nats)")
    axes[0].legend(loc="lower left", fontsize=10)
    return figure
