"""A page with explorers before and after a playground, for the browser tests of both."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from lib.study.explorer import Choice, Explorer, Slider
from lib.study.playground import AttentionPlayground

TOKENS = ["the", "cat", "sat", "down"]
X = [[1.0, 0.5], [-1.0, 2.0], [0.5, -1.5], [-2.0, -0.5]]
MAPS = ([[1.0, 0.5], [0.0, 1.0]], [[1.0, 0.0], [1.0, -0.5]], [[0.5, 1.0], [-1.0, 0.5]])  # no symmetry that hides a transpose


def draw(power, sign, dots):
    figure, ax = plt.subplots(figsize=(3, 2))
    x = np.linspace(0, 1, 9)
    ax.plot(x, sign * x**power, "o-" if dots else "-")
    return figure


def describe(power, sign, dots):
    return f"x to the power {power:g}, times {sign}, {'with' if dots else 'without'} dots <&>."


def explorer(title: str) -> Explorer:
    return Explorer(
        draw,
        title=title,
        alt=describe,
        power=Slider("power", values=[0.5, 1, 2], value=1),
        sign=Choice("sign", options={"up": 1, "down": -1}),
        dots=Choice("dots", options={"yes": True, "no": False}, value=False),
    )


def write_page(folder: Path) -> Path:
    """Write page.html, each piece in a box of the class that the book gives to outputs; returns the folder."""
    playground = AttentionPlayground(TOKENS, X, *MAPS, title="By hand")
    pieces = [explorer("First"), explorer("Second"), playground, explorer("After")]
    outputs = "".join(f'<div class="output">{piece.html}</div>' for piece in pieces)
    (folder / "page.html").write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Page</title>'
        '<meta name="viewport" content="width=device-width">'
        "<style>html[data-theme=dark] { background: #14181e; color: #ced6dd; color-scheme: dark; "
        "--pst-color-text-base: #ced6dd; --pst-color-text-muted: #9ca4af; --pst-color-background: #14181e }</style></head>"
        f"<body><main><h1>Page</h1>{outputs}</main></body></html>",
        encoding="utf-8",
    )
    return folder


def forms(page, title: str):
    return page.locator("form.explorer", has=page.locator("legend", has_text=title))
