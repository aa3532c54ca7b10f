"""Checks of exercises whose answer is a table of shapes: a dict from the name of a tensor to its shape, a tuple."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """One line of the table.

    Args:
        shape: the right shape.
        axes: what the axes stand for, in words: the advice where no known mistake explains an entry.
        mistakes: advice by wrong shape.
    """

    shape: Shape
    axes: str
    mistakes: Mapping[Shape, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ShapeTable:
    """The exercise: its entries by name, a hint for a reader who has not begun, why it matters for one who got it right."""

    hint: str
    why: str
    entries: Mapping[str, Entry]


def check_table(table: ShapeTable, answer: Any) -> None:
    """Print the verdict on the reader's dict. `None`, `...`, an empty dict, or one of `...` alone are not answered yet."""
    print(table_verdict(table, answer))


def table_verdict(table: ShapeTable, answer: Any) -> str:
    """The text that `check_table` prints; a wrong table gets one line of advice for each wrong entry."""
    if answer is None or answer is ... or (isinstance(answer, Mapping) and all(map(_is_open, answer.values()))):
        return f"Not answered yet. {table.hint}"
    if not isinstance(answer, Mapping):
        return f'Not yet. The answer is a dict such as {{"x": (…), …}}, and this is a {type(answer).__name__}.'
    lines = []
    for name, entry in table.entries.items():
        advice = _advice(entry, answer.get(name))
        if advice:
            lines.append(f"  {name}: {advice}")
    unknown = [str(name) for name in answer if name not in table.entries]
    if unknown:
        lines.append(f"  not in this table: {', '.join(unknown)}. Its names are {', '.join(table.entries)}.")
    if not lines:
        return f"Right. {table.why}"
    wrong = sum(_advice(entry, answer.get(name)) is not None for name, entry in table.entries.items())
    return "\n".join([f"Not yet. {len(table.entries) - wrong} of {len(table.entries)} shapes are right.", *lines])


def _is_open(shape: Any) -> bool:
    return shape is None or shape is ... or (isinstance(shape, tuple) and (shape == () or ... in shape))


def _advice(entry: Entry, shape: Any) -> str | None:
    """What to say of one entry; None if it is right."""
    if _is_open(shape):
        return f"not answered yet. Its axes: {entry.axes}."
    if not isinstance(shape, (tuple, list)):
        return f"a shape is a tuple of sizes, and this is {shape!r}."
    shape = tuple(shape)
    if shape == entry.shape:
        return None
    known = entry.mistakes.get(shape)
    if known is None and Counter(shape) == Counter(entry.shape):
        known = f"the right sizes in another order. Its axes: {entry.axes}."
    return f"{shape} is not it: {known or f'its axes are {entry.axes}.'}"
