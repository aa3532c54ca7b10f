"""A tagged sentence as a picture: each token in the color of its tag, the tag and the model's share for it below."""

import warnings
from collections.abc import Sequence

from matplotlib.figure import Figure

from lib.study.plots import BLUE, GRAY, GREEN, ORANGE, box, drawing

KIND_COLORS = {"O": GRAY, "DAY": BLUE, "MONTH": ORANGE, "YEAR": GREEN}
WIDTH, ROWS, PITCH = 6.4, 3, 0.92  # inches, rows of tokens at most, inches from row to row
LONGEST = 16  # letters of a token that are shown


def tagged(tokens: Sequence[str], tags: Sequence[str], shares: Sequence[float], rows: int | None = ROWS) -> Figure:
    """Tokens in rows; with a number of rows, of one fixed size whatever the text. What has no room ends in "…".

    Args:
        tokens, tags: of one sentence; tags as in `lib.study.dates.TAGS`.
        shares: the probability of each tag, 0 … 1.
        rows: that there is room for; None for as many as the tokens fill, up to `ROWS`.
    """
    texts = [token if len(token) <= LONGEST else token[: LONGEST - 1] + "…" for token in tokens]
    widths = [max(0.105 * len(text) + 0.2, 0.105 * len(tag) + 0.08, 0.45) for text, tag in zip(texts, tags, strict=True)]
    places, x, row = [], 0.1, 0
    for width in widths:
        if x + width > WIDTH - 0.1:
            x, row = 0.1, row + 1
        places.append((x, row))
        x += width
    rows = rows or min(row + 1, ROWS)
    figure, ax = drawing(WIDTH, rows * PITCH + 0.1)
    for (x, row), width, text, tag, share in zip(places, widths, texts, tags, shares, strict=True):
        if row == rows:
            ax.text(WIDTH - 0.2, 0.1, "…", ha="center", va="center", fontsize=15)
            break
        y = (rows - row) * PITCH - 0.2
        color = KIND_COLORS[tag.rpartition("-")[2]]
        # A letter that the font lacks is drawn as a box; the words beside the picture still have it.
        box(ax, x + width / 2, y, text, width=width - 0.06, height=0.4, color=color, fontsize=12, parse_math=False)
        weight = "normal" if tag == "O" else "bold"
        ax.text(x + width / 2, y - 0.24, f"{tag}\n{share:.2f}", ha="center", va="top", fontsize=10, weight=weight)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.canvas.draw()
    return figure
