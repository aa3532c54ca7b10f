"""Pictures of the chapter on positions: what a set loses, where each kind of position comes in, hands of clocks, turned arrows.

Shapes: d numbers in a vector, d / 2 pairs of them.
"""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from lib.study.plots import BLUE, GRAY, GREEN, INK, PALE, PURPLE, SKY, VERMILION, arrow, box, drawing


def two_orders(first: Sequence[str], second: Sequence[str]) -> Figure:
    """Two sentences of the same words fall into one bag; with their numbers they do not."""
    figure, ax = drawing(6.4, 3.5)
    for y, words in ((2.75, first), (0.75, second)):
        boxes = [box(ax, 0.75 + 1.05 * i, y, word, width=0.95, color=SKY) for i, word in enumerate(words)]
        for i, drawn in enumerate(boxes):
            ax.text(drawn.bottom[0], y - 0.42, f"place {i}", ha="center", va="center", fontsize=11, color=GRAY)
        middle = boxes[-1].right
        arrow(ax, (middle[0] + 0.02, y), (3.98, 1.75 + 0.3 * (1 if y > 1.75 else -1)), color=INK)
    bag = ",  ".join(sorted(set(first)))
    box(ax, 5.15, 1.75, f"the set\n{{{bag}}}", width=2.3, height=1.0, color=PURPLE)
    ax.text(5.15, 0.95, "places are lost", ha="center", va="center", fontsize=12, color=GRAY)
    return figure


def where_they_enter() -> Figure:
    """The way from tokens to weights, and the three places where positions can come in."""
    figure, ax = drawing(6.6, 4.75)
    x, step = 1.75, 1.15
    tokens, summed, maps, scores = (
        box(ax, x, 0.45 + step * i, text, width=2.7, height=0.62, color=GRAY)
        for i, text in enumerate(("embeddings", "X", "V            Q,  K", "scores"))
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
    arrow(ax, scores.top, (x, 4.45))
    ax.text(x, 4.58, "softmax, then blend V", ha="center", va="center", fontsize=12, color=GRAY)
    return figure


def clocks(position: int, wavelengths: Sequence[float]) -> Figure:
    """A row of clocks, one for each pair of numbers: the hand's tip has height sine and breadth cosine.

    Args:
        position: of the token.
        wavelengths: positions that one turn of each hand takes.
    """
    figure, ax = drawing(6.2, 1.95)
    step = 6.2 / len(wavelengths)
    for i, wavelength in enumerate(wavelengths):
        center = (step * (i + 0.5), 1.05)
        _clock(ax, center, 0.4 * step)
        _hand(ax, center, 0.4 * step, 2 * math.pi * position / wavelength, BLUE)
        ax.text(center[0], 1.75, f"pair {i}", ha="center", va="center", fontsize=12)
        ax.text(center[0], 0.36, "one turn:", ha="center", va="center", fontsize=11, color=GRAY)
        ax.text(center[0], 0.14, f"{wavelength:,.0f}", ha="center", va="center", fontsize=11, color=GRAY)
    return figure


def turned_pair(query_angle: float, key_angle: float, query_turn: float, key_turn: float, title: str) -> Figure:
    """A query and a key as arrows, before and after a turn each by its own position's angle."""
    figure, ax = drawing(6.2, 3.2)
    ax.text(3.1, 3.0, title, ha="center", va="center", fontsize=14, weight="bold")
    for x, name, turned in ((1.6, "as made", 0), (4.6, "turned", 1)):
        center = (x, 1.42)
        _clock(ax, center, 0.95)
        for angle, color, word, dashes in (
            (query_angle + turned * query_turn, VERMILION, "query", "-"),
            (key_angle + turned * key_turn, BLUE, "key", "--"),
        ):
            _hand(ax, center, 0.95, angle, color, dashes)
            at = x + 1.25 * math.cos(angle), 1.42 + 1.12 * math.sin(angle)
            ax.text(*at, word, ha="center", va="center", fontsize=12, color=color)
        ax.text(x, 0.12, name, ha="center", va="center", fontsize=12, color=GRAY)
    return figure


def _clock(ax: Axes, center: tuple[float, float], radius: float) -> None:
    ax.add_patch(Circle(center, radius, facecolor="white", edgecolor=PALE, linewidth=2))


def _hand(ax: Axes, center: tuple[float, float], radius: float, angle: float, color: str, dashes: str = "-") -> None:
    tip = center[0] + radius * math.cos(angle), center[1] + radius * math.sin(angle)
    style = {"arrowstyle": "-|>", "color": color, "lw": 2.4, "ls": dashes, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", tip, center, arrowprops=style)
