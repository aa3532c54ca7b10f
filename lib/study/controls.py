"""What the reader of an explorer moves: each control is a live widget and a piece of static HTML."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets


@dataclass(frozen=True)
class Slider:
    """A number that the reader moves along.

    Args:
        label: what it is, with its unit.
        values: the values of the static book's grid; each multiplies the number of frames.
        value: where it starts; the first when not given.
        live_values: a finer grid for the live notebook, where frames cost nothing.
        format: how a value is written, as in `format(value, "g")`.

    Raises:
        ValueError: no values, or a start that is not one of them, in either grid.
    """

    label: str
    values: Sequence[float]
    value: float | None = None
    live_values: Sequence[float] | None = None
    format: str = "g"

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _start(self, self.values))
        if self.live_values is not None and self.value not in list(self.live_values):
            raise ValueError(f"{self.label!r} starts at {self.value}, which live_values {list(self.live_values)} lack: add it.")

    @property
    def options(self) -> list[tuple[str, float]]:
        return [(self._write(value), value) for value in self.values]

    def widget(self) -> widgets.Widget:
        """The live control."""
        live = [(self._write(value), value) for value in (self.live_values if self.live_values is not None else self.values)]
        style = {"description_width": "initial"}
        return widgets.SelectionSlider(
            options=live, value=self.value, description=self.label, style=style, layout=widgets.Layout(width="min(26rem, 98%)")
        )

    def html(self, stride: int) -> str:
        """The static control; its position times the stride is its share in the number of the frame."""
        position = list(self.values).index(self.value)
        label = html.escape(self._write(self.value))
        return (
            f'<div class="slider" data-stride="{stride}"><label><span>{html.escape(self.label)}</span>'
            f'<input type="range" min="0" max="{len(self.values) - 1}" step="1" value="{position}" aria-valuetext="{label}">'
            f"</label><output>{label}</output></div>"
        )

    def _write(self, value: float) -> str:
        return format(value, self.format).replace("-", "−")


@dataclass(frozen=True)
class Choice:
    """One of a few, all in sight.

    Args:
        label: what is chosen.
        options: the texts, which `draw` gets as they are; or a mapping from each text to the value that `draw` gets.
        value: the value at the start; the first when not given.

    Raises:
        ValueError: no options, or a start that is not one of their values.
    """

    label: str
    options: Any
    value: Any = None

    def __post_init__(self) -> None:
        given = self.options
        pairs = list(given.items()) if isinstance(given, Mapping) else [(str(option), option) for option in given]
        object.__setattr__(self, "options", pairs)
        object.__setattr__(self, "value", _start(self, [value for _, value in pairs]))

    def widget(self) -> widgets.Widget:
        """The live control."""
        style = {"description_width": "initial"}
        return widgets.RadioButtons(
            options=self.options,
            value=self.value,
            description=self.label,
            style=style,
            orientation="horizontal",
            layout=widgets.Layout(width="auto"),
        )

    def html(self, stride: int) -> str:
        """The static control, as in `Slider.html`. The name of its buttons holds inside its own form only."""
        buttons = "".join(
            f'<label><input type="radio" name="choice-{stride}" value="{i}"{" checked" if value == self.value else ""}>'
            f"<span>{html.escape(text)}</span></label>"
            for i, (text, value) in enumerate(self.options)
        )
        legend = f"<legend>{html.escape(self.label)}</legend>"
        return f'<fieldset class="choice" data-stride="{stride}">{legend}{buttons}</fieldset>'


def _start(control: Slider | Choice, values: Sequence[Any]) -> Any:
    values = list(values)
    if not values:
        raise ValueError(f"{control.label!r} has no values to choose from.")
    if control.value is None:
        return values[0]
    if control.value not in values:
        raise ValueError(f"{control.label!r} starts at {control.value!r}, which is none of its values {values}.")
    return control.value
