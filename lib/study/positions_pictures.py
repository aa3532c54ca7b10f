"""Pictures of the chapter on positions: what a set loses, where each kind of position comes in, hands of clocks, turned arrows.

Shapes: d numbers in a vector, d / 2 pairs of them.
"""

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.study.plots import BLUE, GRAY, GREEN, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, arrow, box, drawing


def two_orders(first: Sequence[str], second: Sequence[str]) -> Figure:
    """Two sentences of the same words fall into one bag; with their numbers they do not."""
    figure, ax = drawing(6.4, 3.5)
    for y, words in ((2.75, first), (0.75, second)):
        boxes = [box(ax, 0.75 + 1.05 * i, y, word, width=0.95, color=SKY) for i, word in enumerate(words)]
        for i, drawn in enumerate(boxes):
            ax.text(drawn.bottom[0], y - 0.42, f"place {i}", ha="center", va="center", fontsize=11, color=GRAY)
        middle = boxes[-1].right
        arrow(ax, (middle[0] + 0.02, y), (4.15, 1.75 + 0.28 * (1 if y > 1.75 else -1)), color=INK)
    bag = ",  ".join(sorted(set(first)))
    box(ax, 5.15, 1.75, f"the set\n{{{bag}}}", width=2.3, height=1.0, color=PURPLE)
    ax.text(5.15, 0.95, "places are lost", ha="center", va="center", fontsize=12, color=GRAY)
    return figure


def where_they_enter() -> Figure:
    """The way from tokens to weights, and the three places where positions can come in."""
    figure, ax = drawing(6.6, 4.6)
    x, step = 1.75, 1.15
    tokens, summed, maps, scores = (
        box(ax, x, 0.45 + step * i, text, width=2.7, height=0.62, color=GRAY)
        for i, text in enumerate(("embeddings", "X", "Q,  K            V", "scores"))
    )
    for low, high in ((tokens, summed), (summed, maps), (maps, scores)):
        arrow(ax, low.top, high.bottom)
    ways = (
        (0.45 + 0.5 * step, "add a vector:\nsinusoidal, learned", BLUE),
        (0.45 + 1.98 * step + 0.02, "turn Q and K:\nrotary", VERMILION),
        (0.45 + 3 * step, "take distance off the scores:\nALiBi", GREEN),
    )
    for y, text, color in ways:
        entry = box(ax, 5.05, y, text, width=2.9, height=0.8, color=color)
        arrow(ax, entry.left, (x + (0.03 if y < 1.2 else 1.37), y), color=color, width=2.2)
    ax.text(x, 0.45 + 3.62 * step, "softmax, then blend the values", ha="center", va="center", fontsize=12, color=GRAY)
    return figure


def clocks(position: int, wavelengths: Sequence[float]) -> Figure:
    """A row of clocks, one for each pair of numbers: the hand's tip has height sine and breadth cosine.

    Args:
        position: of the token.
        wavelengths: positions that one turn of each hand takes.
    """
    figure, axes = plt.subplots(1, len(wavelengths), figsize=(6.2, 2.0))
    for i, (ax, wavelength) in enumerate(zip(axes, wavelengths, strict=True)):
        angle = 2 * math.pi * position / wavelength
        _clock(ax)
        _hand(ax, angle, BLUE)
        ax.set_title(f"pair {i}", fontsize=12, loc="center", fontweight="normal")
        ax.text(0, -1.32, f"turn: {wavelength:,.0f}", ha="center", va="top", fontsize=11, color=GRAY)
    return figure


def turned_pair(query_angle: float, key_angle: float, query_turn: float, key_turn: float) -> Figure:
    """A query and a key as arrows, before and after a turn each by its own position's angle."""
    figure, axes = plt.subplots(1, 2, figsize=(6.2, 3.1))
    for ax, title, turned in zip(axes, ("as made", "turned"), (False, True), strict=True):
        _clock(ax)
        for angle, turn, color, name, dashes in (
            (query_angle, query_turn, VERMILION, "query", "-"),
            (key_angle, key_turn, BLUE, "key", "--"),
        ):
            angle += turn if turned else 0.0
            _hand(ax, angle, color, dashes)
            ax.text(1.22 * math.cos(angle), 1.22 * math.sin(angle), name, ha="center", va="center", fontsize=11, color=color)
        ax.set_title(title, loc="center")
        ax.set(xlim=(-1.5, 1.5), ylim=(-1.4, 1.4))
    return figure


def _clock(ax: Axes) -> None:
    ax.add_patch(plt.Circle((0, 0), 1, facecolor="white", edgecolor=PALE, linewidth=2))
    ax.plot([0], [0], "o", color=GRAY, markersize=3)
    ax.set(xlim=(-1.15, 1.15), ylim=(-1.75, 1.15), aspect="equal")
    ax.axis("off")


def _hand(ax: Axes, angle: float, color: str, dashes: str = "-") -> None:
    tip = math.cos(angle), math.sin(angle)
    ax.annotate(
        "", tip, (0, 0), arrowprops={"arrowstyle": "-|>", "color": color, "lw": 2.4, "ls": dashes, "shrinkA": 0, "shrinkB": 0}
    )
    ax.plot(*tip, "o", color=ORANGE, markersize=4)
