"""The two planes of the attention playground as inline SVG, and where the names beside their marks go.

Both planes are drawn in the same units: 3 units from the middle to the edge of the grid. The plane of the values writes other
numbers at its ticks when the values reach further.
"""

import html
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from lib.study.plots import COLORS

LIMIT = 3.0  # coordinates of a word stay within −3 … 3
TICKS = (-2, 0, 2)
EDGE = 3.45  # half the width of the drawn plane, a little more than the grid
LETTER, LINE, MARK = 0.25, 0.45, 0.2  # width of a letter, height of a line, half the width of a mark; in units of the plane

TEXTS = {
    "plane": "Word vectors X",
    "values plane": "Values V (○), outputs (◆)",
    "position": "x₁ {first}, x₂ {second}",
}


def written(number: float, digits: int = 2) -> str:
    """A number as the page writes it: fixed digits, a true minus sign, and no minus before a zero."""
    return f"{round(float(number), digits) + 0.0:.{digits}f}".replace("-", "−")


def unit_of(values: np.ndarray) -> float:
    """What one unit of the plane stands for: 1, doubled until all values fit. Outputs then fit too, as means of values."""
    unit = 1.0
    while np.abs(values).max() > LIMIT * unit:
        unit *= 2
    return unit


def name_places(names: Sequence[str], marks: np.ndarray) -> list[tuple[float, float]]:
    """Where the names go: near their own mark, far from others, inside the plane, over no mark and no other name.

    Args:
        names: n names; marks: (m, 2) with m ≥ n, all marks of the plane, those that the names belong to first.

    Returns:
        The left end of each name's baseline, relative to its mark, upward positive.
    """
    taken = [(a - MARK, b - MARK, a + MARK, b + MARK) for a, b in marks]
    places = []
    for i, (name, (a, b)) in enumerate(zip(names, marks, strict=False)):
        width = LETTER * len(name)
        sides = [(left, up) for up in (0.1, -0.15, -0.45, 0.5, -0.85, 0.9, -1.25) for left in (0.25, -0.25 - width)]
        tries = [*sides, (-width / 2, 0.3), (-width / 2, -0.6)]
        costs = []
        for left, up in tries:
            box = (a + left, b + up, a + left + width, b + up + LINE)
            others = min((_distance(box, mark) for j, mark in enumerate(marks) if j != i), default=1.0)
            blocked = max(map(abs, box)) > EDGE or any(_overlap(box, other) for other in taken)
            costs.append(_distance(box, (a, b)) - min(others, 0.4) + (10 if blocked else 0))
        best = costs.index(min(costs))
        left, up = tries[best]
        taken.append((a + left, b + up, a + left + width, b + up + LINE))
        places.append((left, up))
    return places


def vector_marks(x: np.ndarray) -> np.ndarray:
    """(4n, 2): the points and three places on each one's line to the middle, so that no name covers a line."""
    return np.concatenate([share * np.asarray(x) for share in (1, 0.75, 0.5, 0.25)])


def _distance(box: Sequence[float], point: Sequence[float]) -> float:
    """From a point to the nearest point of a box (left, lower, right, upper)."""
    left, lower, right, upper = box
    return float(np.hypot(max(left - point[0], 0, point[0] - right), max(lower - point[1], 0, point[1] - upper)))


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    """Do two boxes share a part of the plane?"""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def vectors_plane(tokens: Sequence[str], x: np.ndarray) -> str:
    """The plane whose points move. A point is a slider to assistive technology: focusable, moved by arrows, with its value."""
    lines = "".join(
        f'<line class="vector" stroke="{color}" x1="0" y1="0" x2="{a:g}" y2="{-b:g}"/>'
        for (a, b), color in zip(x, COLORS, strict=False)
    )
    points = ""
    for token, (a, b), color, place in zip(tokens, x, COLORS, name_places(tokens, vector_marks(x)), strict=False):
        position = TEXTS["position"].format(first=written(a), second=written(b))
        points += (
            f'<g class="point" tabindex="0" role="slider" aria-label="{html.escape(token)}" aria-valuemin="{-LIMIT:g}" '
            f'aria-valuemax="{LIMIT:g}" aria-valuenow="{a:g}" aria-valuetext="{position}" transform="translate({a:g} {-b:g})">'
            f'<circle class="reach" r="0.36"/><circle r="0.16" fill="{color}"/>{_name(token, place)}</g>'
        )
    return _plane(TEXTS["plane"], "x", 1.0, lines + points, 'role="group"')


def values_plane(tokens: Sequence[str], value: np.ndarray, output: np.ndarray) -> str:
    """Values and outputs, (n, 2) each. The dotted lines between all values outline their hull, which no output can leave."""
    unit = unit_of(value)
    value, output = value / unit, output / unit
    marks = ""
    for i, j in combinations(range(len(tokens)), 2):
        ends = f'x1="{value[i][0]:.3f}" y1="{-value[i][1]:.3f}" x2="{value[j][0]:.3f}" y2="{-value[j][1]:.3f}"'
        marks += f'<line class="pair" data-from="{i}" data-to="{j}" {ends}/>'
    for (a, b), color in zip(value, COLORS, strict=False):
        ring = f'<circle r="0.17" fill="none" stroke="{color}" stroke-width="0.07"/>'
        marks += f'<g class="value" transform="translate({a:.3f} {-b:.3f})">{ring}</g>'
    places = name_places(tokens, np.concatenate([output, value]))
    for token, (a, b), color, place in zip(tokens, output, COLORS, places, strict=False):
        drawn = f'<path d="M0 -0.17 L0.17 0 L0 0.17 L-0.17 0 Z" fill="{color}"/>{_name(token, place)}'
        marks += f'<g class="output" transform="translate({a:.3f} {-b:.3f})">{drawn}</g>'
    return _plane(TEXTS["values plane"], "v", unit, marks, 'role="img"')


def _name(token: str, place: tuple[float, float]) -> str:
    left, up = place
    return f'<text class="name" x="{left:g}" y="{-up:g}">{html.escape(token)}</text>'


def _plane(caption: str, axis: str, unit: float, marks: str, role: str) -> str:
    """A square plane with its grid; the names and numbers of its axes stand outside of it, below and at the left."""
    grid = "".join(
        f'<path class="{"axis" if at == 0 else "grid"}" d="M{at} {-EDGE} V{EDGE} M{-EDGE} {at} H{EDGE}"/>'
        for at in range(-3, 4)
    )
    numbers = {at: written(at * unit, 0) for at in TICKS}
    ticks = "".join(
        f'<text class="tick" data-at="{at}" x="{at}" y="{EDGE + 0.5:g}" text-anchor="middle">{number}</text>'
        f'<text class="tick" data-at="{at}" x="{-EDGE - 0.15:g}" y="{0.14 - at:g}" text-anchor="end">{number}</text>'
        for at, number in numbers.items()
    )
    ends = (
        f'<text x="{LIMIT + 0.15}" y="{EDGE + 0.5:g}" text-anchor="middle">{axis}₁</text>'
        f'<text x="{-EDGE - 0.15:g}" y="{-LIMIT}" text-anchor="end">{axis}₂</text>'
    )
    box = f"{-EDGE - 0.75:g} {-EDGE - 0.05:g} {2 * EDGE + 0.8:g} {2 * EDGE + 0.75:g}"
    frame = f'<rect class="edge" x="{-EDGE}" y="{-EDGE}" width="{2 * EDGE}" height="{2 * EDGE}"/>'
    svg = f'<svg viewBox="{box}" {role} aria-label="{caption}">{frame}{grid}<g class="ticks">{ticks}{ends}</g>{marks}</svg>'
    return f"<figure><figcaption>{caption}</figcaption>{svg}</figure>"
