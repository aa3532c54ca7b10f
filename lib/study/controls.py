"""What the reader of an explorer moves: each control is a live widget and a piece of static HTML."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets


@dataclass
class Slider:
    """A number that the reader moves along.

    Args:
        label: what it is, with its unit.
        values: the values of the static book's grid; each multiplies the number of frames.
        value: where it starts; the first when not given.
        live_values: a finer grid for the live notebook, where frames cost nothing.
        format: how a value is written, as in `format(value, "g")`.

    Raises:
        ValueError: no values, one of them twice, or a start that is not one of them, in either grid.
    """

    label: str
    values: Sequence[float]
    value: float | None = None
    live_values: Sequence[float] | None = None
    format: str = "g"

    def __post_init__(self) -> None:
        self.values = _plain(self.values)
        self.live_values = self.values if self.live_values is None else _plain(self.live_values)
        self.value = _start(self.label, self.value, self.values)
        _start(self.label, self.value, self.live_values)

    @property
    def options(self) -> list[tuple[str, float]]:
        """Text and value of each position of the static grid."""
        return [(self._write(value), value) for value in self.values]

    def widget(self) -> widgets.Widget:
        """The live control."""
        return widgets.SelectionSlider(
            options=[(self._write(value), value) for value in self.live_values],
            value=self.value,
            description=self.label,
            style={"description_width": "initial"},
            layout=widgets.Layout(width="min(26rem, 98%)"),
        )

    def html(self, stride: int) -> str:
        """The static control; its position times the stride is its share in the number of the frame."""
        position = self.values.index(self.value)
        label = html.escape(self._write(self.value))
        return (
            f'<div class="slider" data-stride="{stride}"><label><span>{html.escape(self.label)}</span>'
            f'<input type="range" min="0" max="{len(self.values) - 1}" step="1" value="{position}" aria-valuetext="{label}">'
            f"</label><output>{label}</output></div>"
        )

    def _write(self, value: float) -> str:
        return format(value, self.format).replace("-", "−")


LINE = 90  # letters that fit beside each other in a notebook; a button counts as 4


@dataclass
class Choice:
    """One of a few, all in sight.

    Args:
        label: what is chosen.
        options: the texts, which `draw` gets as they are; or a mapping from each text to the value that `draw` gets.
        value: the value at the start; the first when not given.

    Raises:
        ValueError: no options, one value twice, or a start that is not one of the values.
    """

    label: str
    options: Any
    value: Any = None

    def __post_init__(self) -> None:
        given = self.options
        pairs = list(given.items()) if isinstance(given, Mapping) else [(str(option), option) for option in given]
        self.options = pairs
        self.value = _start(self.label, self.value, [value for _, value in pairs])

    def widget(self) -> widgets.Widget:
        """The live control."""
        return widgets.RadioButtons(
            options=self.options,
            value=self.value,
            description=self.label,
            style={"description_width": "initial"},
            orientation="vertical" if self._long() else "horizontal",
            layout=widgets.Layout(width="auto"),
        )

    def _long(self) -> bool:
        """Whether the options are too many for one line in JupyterLab, where a second one would lie under the picture."""
        return len(self.label) + sum(len(text) + 4 for text, _ in self.options) > LINE

    def html(self, stride: int) -> str:
        """The static control, as in `Slider.html`. The name of its buttons holds inside its own form only."""
        buttons = "".join(
            f'<label><input type="radio" name="choice-{stride}" value="{i}"{" checked" if value == self.value else ""}>'
            f"<span>{html.escape(text)}</span></label>"
            for i, (text, value) in enumerate(self.options)
        )
        legend = f"<legend>{html.escape(self.label)}</legend>"
        return f'<fieldset class="choice" data-stride="{stride}">{legend}{buttons}</fieldset>'


@dataclass
class Text(Choice):
    """A few texts to choose from in the static book, and a field to type any other into in the live notebook.

    Args:
        label: what is written.
        options, value: as in `Choice`.

    `draw` and `alt` meet whatever the reader types, the empty text included, and have to make something of it.
    """

    def widget(self) -> widgets.Widget:
        """The live control: it answers when the reader presses Enter or leaves the field."""
        return widgets.Text(
            value=self.value,
            description=self.label,
            continuous_update=False,
            style={"description_width": "initial"},
            layout=widgets.Layout(width="min(26rem, 98%)"),
        )


def _plain(values: Sequence[float]) -> list[float]:
    """Python's own numbers, also from an array, so that texts and error messages show them plainly."""
    return [value.item() if hasattr(value, "item") else value for value in values]


def _start(label: str, start: Any, values: list[Any]) -> Any:
    """The value to start with, checked."""
    if not values:
        raise ValueError(f"{label!r} has no values to choose from.")
    twice = [value for i, value in enumerate(values) if value in values[:i]]
    if twice:
        raise ValueError(f"{label!r} has a value more than once: {twice}.")
    if start is None:
        return values[0]
    if start not in values:
        raise ValueError(
            f"{label!r} starts at {start!r}, which is none of its values {values}: add it, or start at one of them."
        )
    return start
