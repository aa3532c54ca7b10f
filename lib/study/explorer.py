"""The explorer: one widget with two faces.

In a live notebook it is a widget whose picture is drawn anew as the reader moves a control. In the static book it is plain
HTML: every picture over a modest grid of values is already there, and a few lines of script show the one that the controls
ask for. Both faces come from the same pure function, so they cannot tell different stories.

The HTML is self-contained, uses no ids (so that any number of explorers share a page) and is the same for the same figures.
"""

import html
import inspect
import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

from lib.study.controls import Choice, Slider, Text
from lib.study.faces import FRAME_DPI, asset, img, picture, static_form

__all__ = ["Choice", "Explorer", "Slider", "Text"]

SIZE_LIMIT = 400_000  # bytes of one explorer's HTML; a chapter holds several and is to stay below 2 MB

# Every text of the faces that no parameter gives.
TEXTS = {
    "no script": "Moving the controls needs JavaScript; without it the first picture stays.",
}


class Explorer(widgets.VBox):
    """A picture that the reader moves, live in a notebook and static in the book.

    Args:
        draw: a pure function of the controls' values, by name, that returns a new figure of one fixed size.
        title: what is explored.
        alt: a function of the same values that says in a sentence or two, with numbers, what the picture shows.
        dpi: dots per inch of the frames; fewer make a smaller page.
        controls: a `Slider`, `Choice` or `Text` for each parameter of `draw`, in the order of appearance.

    Attributes:
        html: the static face.

    Raises:
        TypeError: controls that are not the parameters of `draw` or `alt`; a `draw` that returns no figure.
        ValueError: a static face beyond 400 kB.
    """

    def __init__(
        self,
        draw: Callable[..., Figure],
        *,
        title: str,
        alt: Callable[..., str],
        dpi: int = FRAME_DPI,
        **controls: Slider | Choice,
    ):
        for name, function in {"draw": draw, "alt": alt}.items():
            _check_parameters(name, function, controls)
        self._draw, self._alt, self._dpi, self._title = draw, alt, dpi, title
        # All frames are drawn at once, so that a fault in any corner of the grid stops the author and not a reader.
        self.html = self._static_face(controls)
        self._controls = {name: control.widget() for name, control in controls.items()}
        self._picture, self._text = widgets.HTML(), widgets.HTML()
        heading = widgets.HTML(f"<strong>{html.escape(title)}</strong>")
        super().__init__([heading, *self._controls.values(), self._picture, self._text])
        for control in self._controls.values():
            control.observe(self._redraw, names="value")
        self._redraw()

    def __repr__(self) -> str:
        return f"Explorer({self._title!r}, {self._count} frames)"

    def _repr_mimebundle_(self, **kwargs) -> dict[str, Any]:
        return {**super()._repr_mimebundle_(**kwargs), "text/plain": repr(self), "text/html": self.html}

    def _redraw(self, _change=None) -> None:
        """Live: the picture and the words for where the controls stand now."""
        source, text = self._frame({name: control.value for name, control in self._controls.items()})
        # An HTML widget, since an Image widget carries no text for those who do not see it.
        self._picture.value = img(source, text)
        self._text.value = f'<p role="status" style="margin:0; line-height:1.4">{html.escape(text)}</p>'

    def _frame(self, values: dict[str, Any]) -> tuple[str, str]:
        """The picture, as a data address, and its words."""
        return picture(self._draw, values, self._dpi), self._alt(**values)

    def _static_face(self, controls: dict[str, Slider | Choice]) -> str:
        strides = _strides([len(control.options) for control in controls.values()])
        frames = [self._frame(values) for values in _grid(controls)]
        self._count = len(frames)
        start = sum(
            stride * [value for _, value in control.options].index(control.value)
            for stride, control in zip(strides, controls.values(), strict=True)
        )
        data = {
            "labels": [[text for text, _ in control.options] for control in controls.values()],
            "texts": [text for _, text in frames],
            "pictures": [source for source, _ in frames],
        }
        source, text = frames[start]
        inputs = "".join(control.html(stride) for stride, control in zip(strides, controls.values(), strict=True))
        body = (
            f'<div class="controls">{inputs}</div>\n<div class="picture">{img(source, text)}</div>\n'
            f'<p class="says" aria-live="polite">{html.escape(text)}</p>\n<noscript><p>{TEXTS["no script"]}</p></noscript>'
        )
        page = static_form(self._title, body, data, script=asset("explorer.js"))
        _check_size(page, self._title, self._count)
        return page


def _grid(controls: dict[str, Slider | Choice]) -> Iterator[dict[str, Any]]:
    """Every combination of values, the last control moving fastest."""
    for combination in product(*([value for _, value in control.options] for control in controls.values())):
        yield dict(zip(controls, combination, strict=True))


def _strides(counts: list[int]) -> list[int]:
    """How many frames one step of each control skips, in the order of `_grid`."""
    return [math.prod(counts[i + 1 :]) for i in range(len(counts))]


def _check_parameters(name: str, function: Callable, controls: dict[str, Slider | Choice]) -> None:
    for parameter, control in controls.items():
        if not isinstance(control, Slider | Choice):
            raise TypeError(f"{parameter} must be a Slider or a Choice, got {type(control).__name__}.")
    try:
        inspect.signature(function).bind(**controls)
    except TypeError as error:
        given = ", ".join(controls) or "none"
        raise TypeError(f"{name}{inspect.signature(function)} does not fit the controls ({given}): {error}.") from None


def _check_size(page: str, title: str, frames: int) -> None:
    size = len(page.encode())
    if size > SIZE_LIMIT:
        raise ValueError(
            f"Explorer {title!r} takes {size / 1000:.0f} kB as static HTML, {frames} frames of {size / frames / 1000:.1f} kB; "
            f"the limit is {SIZE_LIMIT / 1000:.0f} kB, room for about {int(SIZE_LIMIT / size * frames)} such frames. Give the "
            "sliders fewer values (live_values keeps a fine grid for the live notebook), or make the figure smaller (figsize, "
            "dpi)."
        )
