"""The online softmax, one tile after the other: what each step of `lib.tiled` holds, and pictures of it.

Shapes: n queries and n keys, tiles of `tile` by `tile`, values of width 1.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from torch import Tensor

from lib import masks
from lib.study import plots

WHOLE, CROSSED, DEAD = "whole", "crossed", "dead"


@dataclass(frozen=True)
class Step:
    """One tile of the walk, and what the n rows hold after it. A row that no tile has met yet holds −∞, 0 and 0."""

    row: int  # of tiles
    column: int
    kind: str  # WHOLE, CROSSED or DEAD
    peak: Tensor  # (n,) the largest score so far
    total: Tensor  # (n,) Σ e^(score − peak) so far
    output: Tensor  # (n,) Σ e^(score − peak) · value so far


def kind_of(row: int, column: int, causal: bool) -> str:
    """Whether the causal mask leaves a square tile whole, crosses it or hides all of it."""
    if not causal or column < row:
        return WHOLE
    return CROSSED if column == row else DEAD


def walk(scores: Tensor, values: Tensor, tile: int, *, causal: bool) -> list[Step]:
    """Every tile in reading order.

    Args:
        scores: (n, n), n a multiple of the tile.
        values: (n,).
    """
    n = len(values)
    scores = scores.masked_fill(~masks.causal(n), -torch.inf) if causal else scores
    peak, total, output = torch.full((n,), -torch.inf), torch.zeros(n), torch.zeros(n)
    steps = []
    for row in range(n // tile):
        rows = slice(row * tile, (row + 1) * tile)
        for column in range(n // tile):
            columns = slice(column * tile, (column + 1) * tile)
            kind = kind_of(row, column, causal)
            if kind != DEAD:
                part = scores[rows, columns]
                new = torch.maximum(peak[rows], part.amax(dim=-1))
                shrink, weights = (peak[rows] - new).exp(), (part - new[:, None]).exp()
                peak, total, output = peak.clone(), total.clone(), output.clone()
                total[rows] = total[rows] * shrink + weights.sum(dim=-1)
                output[rows] = output[rows] * shrink + weights @ values[columns]
                peak[rows] = new
            steps.append(Step(row, column, kind, peak, total, output))
    return steps


def draw_stream(scores: Tensor) -> Figure:
    """Scores as they come, the largest so far, and the sum so far, which shrinks where the largest one changes."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(6.2, 4.6), sharex=True)
    peaks = scores.cummax(dim=0).values
    sums = torch.stack([(scores[: i + 1] - peaks[i]).exp().sum() for i in range(len(scores))])
    at = torch.arange(1, len(scores) + 1)
    above.vlines(at, scores.min() - 0.4, scores, color=plots.SKY, linewidth=5)
    above.plot(at, scores, "o", color=plots.BLUE, label="score")
    above.step(at, peaks, where="mid", color=plots.VERMILION, linestyle="--", label="largest so far, m")
    above.set(ylabel="score")
    above.legend(loc="upper left")
    rises = [i for i in range(1, len(scores)) if peaks[i] > peaks[i - 1]]
    below.plot(at, sums, "s-", color=plots.GREEN, label="sum so far, ℓ")
    below.plot(at[rises], sums[rises], "v", color=plots.VERMILION, markersize=12, label="a new largest: ℓ is rescaled")
    below.set(ylabel="sum of $e^{s - m}$", xlabel="scores read", ylim=(0, float(sums.max()) * 1.5))
    below.set_xticks(at.tolist())
    below.legend(loc="upper left")
    return figure


def draw_plan(tiles: int = 4, in_hand: tuple[int, int] = (2, 1)) -> Figure:
    """Which tiles a causal mask leaves, the one in hand, and what its rows carry along."""
    figure, ax = plots.drawing(6.4, 4.3)
    size, left, bottom = 0.64, 1.2, 0.75
    top = bottom + tiles * size
    for row in range(tiles):
        for column in range(tiles):
            x, y = left + column * size, top - (row + 1) * size
            _tile(ax, x, y, size, kind_of(row, column, causal=True), hot=(row, column) == in_hand)
    row, column = in_hand
    y, x = top - (row + 0.5) * size, left + (column + 0.5) * size
    plots.box(ax, 0.6, y, "queries", width=0.95, height=size - 0.1, color=plots.VERMILION, fontsize=11)
    plots.box(ax, x, top + 0.42, "keys\nvalues", width=size + 0.15, height=0.62, color=plots.VERMILION, fontsize=11)
    right = left + tiles * size
    held = plots.box(ax, right + 1.35, y, "each row carries\nm, ℓ, o", width=1.6, height=0.7, color=plots.GREEN, fontsize=12)
    plots.arrow(ax, (right + 0.02, y), held.left, color=plots.GREEN)
    for i, (kind, text) in enumerate(
        ((WHOLE, "no mask needed"), (CROSSED, "crossed by the mask"), (DEAD, "dead: never visited"))
    ):
        _tile(ax, right + 0.3, top - 0.1 - 0.36 * i, 0.26, kind)
        ax.text(right + 0.64, top + 0.03 - 0.36 * i, text, va="center", fontsize=11)
    ax.text(left + tiles * size / 2, 0.4, "n keys, in tiles  →", ha="center", va="center", fontsize=12, color=plots.GRAY)
    return figure


def draw_walk(scores: Tensor, values: Tensor, tile: int, step: int, *, causal: bool) -> Figure:
    """The tiles after so many steps, and what every row holds: −∞, 0 and 0 before the first of them."""
    n, steps = len(values), walk(scores, values, tile, causal=causal)
    now = steps[step - 1] if step else Step(-1, -1, WHOLE, torch.full((n,), -torch.inf), torch.zeros(n), torch.zeros(n))
    figure, ax = plots.drawing(6.3, 2.9)
    size, left, top = 0.36, 0.42, 2.35
    limit = float(scores.abs().max())
    shade = plt.get_cmap("PuOr")
    for i in range(n):
        ax.text(left - 0.14, top - (i + 0.5) * size, str(i), ha="center", va="center", fontsize=10, color=plots.GRAY)
        ax.text(left + (i + 0.5) * size, top + 0.13, str(i), ha="center", va="center", fontsize=10, color=plots.GRAY)
    for number, one in enumerate(steps, start=1):
        x, y, side = left + one.column * tile * size, top - (one.row + 1) * tile * size, tile * size
        if number != step or one.kind == DEAD:
            _tile(ax, x, y, side, one.kind if one.kind == DEAD else "past" if number < step else "ahead", hot=number == step)
            continue
        for i in range(tile):
            for j in range(tile):
                r, c = one.row * tile + i, one.column * tile + j
                hidden = causal and c > r
                color = "white" if hidden else shade(float(scores[r, c]) / limit / 2 + 0.5)
                place = x + j * size, y + side - (i + 1) * size
                ax.add_patch(Rectangle(place, size, size, facecolor=color, edgecolor=plots.PALE))
                text = "−∞" if hidden else f"{scores[r, c]:.1f}".replace("-", "−")
                ink = "black" if hidden else plots._ink_on(color)
                ax.text(place[0] + size / 2, place[1] + size / 2, text, ha="center", va="center", fontsize=9.5, color=ink)
        ax.add_patch(Rectangle((x, y), side, side, fill=False, edgecolor=plots.VERMILION, linewidth=2.6))
    _table(ax, now, left + n * size + 0.35, top, size, tile)
    title = "before the first tile" if not step else f"tile {step} of {len(steps)}" + (": dead, skipped" * (now.kind == DEAD))
    ax.text(left, top + 0.42, title, va="center", fontsize=12, weight="bold")
    return figure


def _table(ax: Axes, now: Step, x: float, top: float, size: float, tile: int) -> None:
    """m, ℓ, o and o/ℓ of every row; the rows in hand in bold."""
    columns = [x + offset for offset in (0.35, 1.1, 1.85, 2.75)]
    for place, name in zip(columns, ("m", "ℓ", "o", "output o/ℓ"), strict=True):
        ax.text(place, top + 0.13, name, ha="center", va="center", fontsize=11, color=plots.GRAY)
    for i, (peak, total, output) in enumerate(zip(now.peak.tolist(), now.total.tolist(), now.output.tolist(), strict=True)):
        hot = i // tile == now.row and now.kind != DEAD
        texts = (
            ("−∞", "0", "0", "") if total == 0 else (f"{peak:.1f}", f"{total:.2f}", f"{output:.2f}", f"{output / total:.2f}")
        )
        for place, text in zip(columns, texts, strict=True):
            ax.text(
                place, top - (i + 0.5) * size, text.replace("-", "−"), ha="center", va="center", fontsize=11,
                weight="bold" if hot else "normal", color=plots.VERMILION if hot else plots.INK,
            )  # fmt: skip


def _tile(ax: Axes, x: float, y: float, size: float, kind: str, *, hot: bool = False) -> None:
    """A square: filled, half filled, hatched; or "past" (seen and forgotten) and "ahead"."""
    face = {WHOLE: plots.SKY, "past": plots.PALE}.get(kind, "white")
    ax.add_patch(Rectangle((x, y), size, size, facecolor=face, edgecolor=plots.GRAY, hatch="///" if kind == DEAD else ""))
    if kind == CROSSED:
        ax.add_patch(Polygon([(x, y), (x + size, y), (x, y + size)], facecolor=plots.SKY, edgecolor=plots.GRAY))
    if hot:
        ax.add_patch(Rectangle((x, y), size, size, fill=False, edgecolor=plots.VERMILION, linewidth=3))
