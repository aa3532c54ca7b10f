"""What the tests of all exercises share: tables of answers as parameters, and how clearly the cases tell two answers apart."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from lib.study.exercises import Exercise, run, same


def pairs(table: Mapping[str, Sequence[Any]]) -> list:
    """Exercise -> its answers, as parameters (name, answer), each with an id of its own."""
    return [pytest.param(name, answer, id=f"{name}-{i}") for name, answers in table.items() for i, answer in enumerate(answers)]


def known_mistakes(exercises: Mapping[str, Exercise]) -> list:
    """Parameters (name, mistake): all known wrong versions of all exercises."""
    return pairs({name: exercise.mistakes for name, exercise in exercises.items()})


def assert_advice(text: str, words: str = "", *, begins: str = "Not yet. With ") -> None:
    """`text` refuses an answer in one line, which names the case that told, and has `words` in its advice."""
    assert text.startswith(begins)
    assert words in text
    assert "\n" not in text


def margin(exercise: Exercise, one: Callable[..., Any], other: Callable[..., Any]) -> float:
    """How clearly some case tells two functions apart: the largest difference, ∞ where type, shape, error or NaN differ."""
    largest = 0.0
    for case in exercise.cases():
        a, b = run(one, case), run(other, case)
        if same(a, b):
            continue
        a, b = (list(x.value) if isinstance(x.value, tuple) else [x.value] for x in (a, b))
        if len(a) != len(b) or any(x is None or y is None or x.shape != y.shape for x, y in zip(a, b, strict=True)):
            return math.inf
        differences = [(x.double() - y.double()).abs().max().item() for x, y in zip(a, b, strict=True)]
        largest = max(largest, *(math.inf if math.isnan(d) else d for d in differences))
    return largest
