"""A tagged sentence as a picture: each token in the color of its tag, the tag and the model's share for it below."""

import warnings
from collections.abc import Sequence

from matplotlib.figure import Figure

from lib.study.plots import BLUE, GRAY, GREEN, ORANGE, box, drawing

KIND_COLORS = {"O": GRAY, "DAY": BLUE, "MONTH": ORANGE, "YEAR": GREEN}
WIDTH, ROWS, PITCH = 6.4, 3, 0.98  # inches, rows of tokens, inches from row to row
LONGEST = 16  # letters of a token that are shown


def tagged(tokens: Sequence[str], tags: Sequence[str], shares: Sequence[float], rows: int = ROWS) -> Figure:
    """Tokens in rows, of one fixed size whatever the text; what has no room ends in "…".

    Args:
        tokens, tags: of one sentence; tags as in `lib.study.dates.TAGS`.
        shares: the probability of each tag, 0 … 1.
        rows: that there is room for.
    """
    figure, ax = drawing(WIDTH, rows * PITCH + 0.1)
    x, row = 0.1, 0
    for token, tag, share in zip(tokens, tags, shares, strict=True):
        text = token if len(token) <= LONGEST else token[: LONGEST - 1] + "…"
        width = max(0.93, 0.15 * len(text) + 0.3)
        if x + width > WIDTH - 0.1:
            x, row = 0.1, row + 1
        y = (rows - row) * PITCH - 0.25
        if row == rows:
            ax.text(WIDTH - 0.2, 0.1, "…", ha="center", va="center", fontsize=15)
            break
        color = KIND_COLORS[tag.rpartition("-")[2]]
        # A letter that the font lacks is drawn as a box; the words beside the picture still have it.
        box(ax, x + width / 2, y, text, width=width - 0.08, height=0.42, color=color, fontsize=14, parse_math=False)
        weight = "normal" if tag == "O" else "bold"
        ax.text(x + width / 2, y - 0.24, f"{tag}\n{share:.2f}", ha="center", va="top", fontsize=11, weight=weight)
        x += width
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.canvas.draw()
    return figure
