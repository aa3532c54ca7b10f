"""One look for every figure of the book, and the few kinds of figure that come back: heatmap, curves over seeds, drawings.

Figures are opaque white with dark ink, so they read the same in the light and the dark theme, and their letters are large
enough for a page 400 pixels wide. Color never carries a meaning alone: lines differ in dash too, cells show their number.
The palette is that of Okabe and Ito, "Color Universal Design" (2008), made to be told apart with any common color blindness.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from PIL import Image

DPI = 120
INK = "#1b1f24"
GRAY = "#5c6570"
PALE = "#d5dae0"
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
)
COLORS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))

STYLE = {
    "figure.figsize": (6.0, 3.6),
    "figure.dpi": DPI,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "savefig.dpi": DPI,
    "savefig.facecolor": "white",
    "savefig.transparent": False,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that pictures do not depend on the machine's fonts
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 13,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRAY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=COLORS, linestyle=DASHES),
    "axes.unicode_minus": True,
    "grid.color": PALE,
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.2,
    "legend.frameon": True,
    "legend.framealpha": 1.0,
    "legend.edgecolor": PALE,
    "legend.fontsize": 12,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
}

# Without the version of matplotlib in it, a picture drawn again is the same file again.
_METADATA = {"Software": None}


def use_style() -> None:
    """Give every later figure the book's look, and the notebook's inline pictures reproducible bytes."""
    plt.rcParams.update(STYLE)
    try:
        from IPython import get_ipython
        from matplotlib_inline.config import InlineBackend
    except ImportError:  # plain Python without a notebook
        return
    if get_ipython() is not None:
        InlineBackend.instance(parent=get_ipython()).print_figure_kwargs = {"bbox_inches": "tight", "metadata": _METADATA}


def heatmap(
    weights,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    ax: Axes | None = None,
    title: str = "",
    limits: tuple[float, float] = (0.0, 1.0),
    colormap: str = "Blues",
    row_name: str = "query",
    column_name: str = "attends to key →",
    color_name: str = "weight",
    numbers: bool | None = None,
    colorbar: bool = True,
) -> Axes:
    """Show who attends to whom: a row for each query, a column for each key, read like a table.

    Args:
        weights: (L, S) array or tensor, one head of one sequence.
        rows, columns: the L and S tokens.
        ax: where to draw; a new figure, sized for the number of tokens, when not given.
        limits: values of the palest and the darkest color. Weights are 0 … 1, the default; for scores give (−m, m) and a
            colormap with a neutral middle, such as "PuOr".
        numbers: write each value into its cell; by default where there are at most 64 cells.

    Returns:
        The axes, whose `figure` is the picture.

    Raises:
        ValueError: shapes that do not fit the tokens; values outside the limits, which would be shown as something else.
    """
    weights = np.asarray(weights.detach().cpu().float() if hasattr(weights, "detach") else weights, dtype=float)
    if weights.shape != (len(rows), len(columns)):
        raise ValueError(
            f"weights of shape {weights.shape} do not fit {len(rows)} rows and {len(columns)} columns. "
            "Index one sequence and one head first: weights[0, 0]."
        )
    low, high = limits
    if weights.size and not (weights.min() >= low - 1e-6 and weights.max() <= high + 1e-6):
        raise ValueError(
            f"values {weights.min():g} … {weights.max():g} leave the color limits {low:g} … {high:g}: pass limits=."
        )
    if ax is None:
        size = max(3.4, 0.62 * len(columns) + 2.2), max(2.6, 0.5 * len(rows) + 1.4)
        _, ax = plt.subplots(figsize=size)
    image = ax.imshow(weights, cmap=colormap, vmin=low, vmax=high, aspect="auto")
    _label_cells(ax, rows, columns, row_name, column_name)
    if numbers if numbers is not None else weights.size <= 64:
        for (i, j), value in np.ndenumerate(weights):
            ax.text(j, i, f"{value:.2f}".replace("-", "−"), ha="center", va="center", color=_ink_on(image.to_rgba(value)))
    if colorbar:
        bar = ax.figure.colorbar(image, ax=ax, label=color_name, pad=0.03)
        bar.outline.set_visible(False)
    if title:
        ax.set_title(title)
    return ax


def _label_cells(ax: Axes, rows, columns, row_name: str, column_name: str) -> None:
    """Tokens along the edges as in a table: columns above, rows at the left, the row's meaning in the corner between."""
    steep = max((len(str(c)) for c in columns), default=0) > 4
    ax.set_xticks(
        range(len(columns)), columns, rotation=40 if steep else 0, ha="left" if steep else "center", rotation_mode="anchor"
    )
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    ax.xaxis.set_label_position("top")
    ax.set_xlabel(column_name, color=GRAY)
    ax.set_ylabel(row_name, color=GRAY)
    ax.spines[:].set_visible(False)
    ax.grid(False)


def _ink_on(color) -> str:
    """Black or white letters, whichever stands out more: a contrast of at least 4.5 on any color (WCAG 2, section 1.4.3)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    luminance = np.dot([0.2126, 0.7152, 0.0722], linear)
    return "black" if luminance > 0.179 else "white"


def line_with_spread(ax: Axes, x, runs, label: str, **line) -> None:
    """Draw the mean over seeds as a line and the range from the least to the greatest seed as a band around it.

    Args:
        x: (n,) positions.
        runs: (seeds, n) one row for each seed; a single row has no band.
        label: name in the legend.
        line: further properties of the line, as in `Axes.plot`.

    Raises:
        ValueError: runs that are not (seeds, n).
    """
    x, runs = np.asarray(x), np.asarray(runs, dtype=float)
    if runs.ndim != 2 or runs.shape[1:] != x.shape or not len(runs):
        raise ValueError(f"runs must be (seeds, n = {x.size}), one row for each seed, got shape {runs.shape}.")
    (drawn,) = ax.plot(x, runs.mean(axis=0), label=label, **line)
    if len(runs) > 1:
        ax.fill_between(x, runs.min(axis=0), runs.max(axis=0), color=drawn.get_color(), alpha=0.2, linewidth=0)


class Box(NamedTuple):
    """The four points of a drawn box where arrows begin and end, each (x, y)."""

    left: tuple[float, float]
    right: tuple[float, float]
    top: tuple[float, float]
    bottom: tuple[float, float]


def drawing(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty sheet for boxes and arrows; coordinates are inches from the lower left corner.

    Letters keep their size on the sheet, so one that is at most 6.5 inches wide stays readable on a narrow page.
    """
    figure = plt.figure(figsize=(width, height))
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(0, height))
    ax.axis("off")
    return figure, ax


def box(ax: Axes, x: float, y: float, text: str, *, width=1.2, height=0.5, color=SKY, fontsize=12, **style) -> Box:
    """A rounded box centered on (x, y) with dark text on a pale tint of the color, and a border of the color itself.

    Args:
        width, height: of the box, in the sheet's inches.
        color: any of this module's colors; GRAY for what is not the point of the picture.
        style: further properties of the text, as in `Axes.text`.
    """
    tint = 0.78 + 0.22 * np.array(matplotlib.colors.to_rgb(color))
    left, bottom = x - width / 2, y - height / 2
    shape = FancyBboxPatch(
        (left, bottom), width, height, boxstyle="round,pad=0,rounding_size=0.08", facecolor=tint, edgecolor=color, linewidth=1.6
    )
    ax.add_patch(shape)
    ax.text(x, y, text, ha="center", va="center", fontsize=fontsize, **style)
    return Box((left, y), (left + width, y), (x, bottom + height), (x, bottom))


def arrow(ax: Axes, start, end, text="", *, color=INK, width=1.6, bend=0.0, dashes="-", above=True) -> None:
    """An arrow from one point to another, with a word beside its middle.

    Args:
        start, end: (x, y), as `box` returns them.
        bend: how far the arrow bows out, as a part of its length; 0 is straight.
        above: whether the word stands above a level arrow (and left of a steep one) or on its other side.
    """
    ax.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=14,
            shrinkA=2,
            shrinkB=2,
            color=color,
            linewidth=width,
            linestyle=dashes,
            connectionstyle=f"arc3,rad={bend}",
        )
    )
    if text:
        (x0, y0), (x1, y1) = start, end
        steep = abs(y1 - y0) > abs(x1 - x0)
        side = 1 if above else -1
        ax.annotate(
            text,
            ((x0 + x1) / 2, (y0 + y1) / 2),
            xytext=(-5 * side, 0) if steep else (0, 4 * side),
            textcoords="offset points",
            ha=("right" if above else "left") if steep else "center",
            va="center" if steep else ("bottom" if above else "top"),
            fontsize=11,
            color=color,
        )


def to_png(figure: Figure, dpi: int = DPI) -> bytes:
    """A figure as a compact PNG: a figure drawn afresh in the same way gives the same bytes.

    Lines, letters and flat colors need few colors, so the picture is stored with a palette of 256 where nobody sees the
    difference (999 of 1000 pixels move by at most 12 of 255 levels), in about a third of the bytes. A picture that needs
    more, a photograph for one, is stored as it is. The figure stays open: close it with `plt.close(figure)`.
    """
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata=_METADATA)
    full = picture = Image.open(buffer).convert("RGB")
    if full.getcolors(1 << 14) is not None:  # beyond that many it is no drawing, and the search for a palette takes seconds
        few = full.quantize(256, method=Image.Quantize.MEDIANCUT, kmeans=1, dither=Image.Dither.NONE)
        moved = np.abs(np.asarray(full, dtype=int) - np.asarray(few.convert("RGB"), dtype=int)).max(axis=-1)
        picture = few if np.quantile(moved, 0.999) <= 12 else full
    compact = BytesIO()
    picture.save(compact, format="png", optimize=True)
    return compact.getvalue()
