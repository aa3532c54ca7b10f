"""Drawn pictures of the chapters: boxes and arrows made by code, so that they change with the text and stay sharp."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from lib.study.plots import BLUE, GRAY, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION, arrow, box, drawing


def soft_lookup(query: str, keys: Sequence[str], values: Sequence[str], weights: Sequence[float], answer: str) -> Figure:
    """A query meets each key; each match becomes a weight; the weights blend the values into one answer.

    Args:
        query, answer: their texts.
        keys, values, weights: one each for every entry of the dictionary; the thickness of an arrow is the weight.
    """
    figure, ax = drawing(6.4, 0.95 + 0.75 * len(keys))
    middle = 0.4 + 0.75 * len(keys) / 2
    asked = box(ax, 0.85, middle, f"query\n{query}", width=1.5, height=0.75, color=VERMILION)
    taken = box(ax, 5.65, middle, f"answer\n{answer}", width=1.35, height=0.75, color=GREEN)
    for row, (key, value, weight) in enumerate(zip(keys, values, weights, strict=True)):
        y = 0.4 + 0.75 * (len(keys) - row - 0.5)
        key_box = box(ax, 2.5, y, key, width=1.0, color=SKY)
        value_box = box(ax, 4.15, y, value, width=1.0, color=ORANGE)
        color, width = (INK if weight > 0.1 else GRAY), 0.8 + 5 * weight
        arrow(ax, asked.right, key_box.left, color=color, width=width)
        ax.text(3.32, y, f"{weight:.2f}", ha="center", va="center", fontsize=12, weight="bold" if weight > 0.1 else "normal")
        arrow(ax, value_box.right, taken.left, color=color, width=width)
    for x, name in ((0.85, "ask"), (2.5, "match keys"), (4.15, "blend values"), (5.65, "take")):
        ax.text(x, 0.68 + 0.75 * len(keys), name, ha="center", va="center", fontsize=12, weight="bold")
    ax.text(3.32, 0.2, "weights: together 1", ha="center", va="center", fontsize=11, color=GRAY)
    return figure


def four_steps() -> Figure:
    """Self-attention from X to the output in four steps, each box with its shape."""
    figure, ax = drawing(6.8, 5.5)
    x = box(ax, 3.6, 0.45, "X    (n, d_model)", width=2.3, color=GRAY)
    maps = {}
    for center, name, shape, color in (
        (1.4, "Q = X·W_q", "(n, d_k)", VERMILION),
        (3.6, "K = X·W_k", "(n, d_k)", BLUE),
        (5.8, "V = X·W_v", "(n, d_v)", ORANGE),
    ):
        maps[name[0]] = box(ax, center, 1.6, f"{name}\n{shape}", width=1.6, height=0.72, color=color)
        arrow(ax, x.top, maps[name[0]].bottom)
    scores = box(ax, 2.5, 2.95, "scores = Q·Kᵀ / √d_k\n(n, n)", width=2.6, height=0.75, color=PURPLE)
    arrow(ax, maps["Q"].top, scores.bottom)
    arrow(ax, maps["K"].top, scores.bottom)
    weights = box(ax, 2.5, 4.05, "weights = softmax of each row\n(n, n)", width=3.2, height=0.75, color=PURPLE)
    arrow(ax, scores.top, weights.bottom)
    output = box(ax, 4.15, 5.1, "output = weights·V\n(n, d_v)", width=2.3, height=0.7, color=GREEN)
    arrow(ax, weights.top, output.bottom)
    arrow(ax, maps["V"].top, output.bottom)
    for y, step in ((1.6, "1"), (2.95, "2"), (4.05, "3"), (5.1, "4")):
        ax.text(0.25, y, step, fontsize=15, weight="bold", ha="center", va="center", color=GRAY)
    return figure
