"""What every two-faced widget of the book needs: pictures as text, and the frame of its static HTML."""

import base64
import html
import json
from collections.abc import Callable
from importlib import resources
from io import BytesIO
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

from lib.study.plots import to_png

FRAME_DPI = 96


def picture(draw: Callable[..., Figure], values: dict[str, Any], dpi: int = FRAME_DPI) -> str:
    """Draw a figure, close it, and return it as a `data:` address.

    Raises:
        TypeError: `draw` returned something else than a figure.
    """
    before = set(plt.get_fignums())
    try:
        figure = draw(**values)
        if not isinstance(figure, Figure):
            raise TypeError(f"draw must return its figure (`return figure`), got {type(figure).__name__} for {values}.")
        return "data:image/png;base64," + base64.b64encode(to_png(figure, dpi)).decode()
    finally:
        for number in set(plt.get_fignums()) - before:
            plt.close(number)


def static_form(title: str, body: str, data: Any, script: str, style: str = "") -> str:
    """The frame that every static face shares: a form with a legend, its style, its data as JSON and its script."""
    # "<" inside JSON would let a text end the script element.
    packed = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<form class="explorer" autocomplete="off" novalidate>\n<style>\n{asset("explorer.css")}{style}</style>\n'
        f'<fieldset class="frame"><legend>{html.escape(title)}</legend>\n{body}\n</fieldset>\n'
        f'<script type="application/json">{packed}</script>\n<script>\n{script}</script>\n</form>'
    )


def asset(name: str) -> str:
    """The text of a style sheet or script that lies beside this module."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def img(source: str, text: str) -> str:
    """An image element; width and height keep its place on the page before it is decoded. `dark-light`: no theme filter."""
    width, height = Image.open(BytesIO(base64.b64decode(source.partition(",")[2]))).size
    style = "max-width:100%; height:auto"
    alt = html.escape(text)
    return f'<img class="dark-light" src="{source}" alt="{alt}" width="{width}" height="{height}" style="{style}">'
