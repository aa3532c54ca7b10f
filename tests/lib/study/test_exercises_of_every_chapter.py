"""What holds of each exercise of every chapter, found in `lib.study.exercises`: a new one need not be named here."""

import contextlib
import importlib
import io
import pkgutil
from collections.abc import Callable
from types import FunctionType

import pytest
import torch

from lib.study import exercises
from lib.study.exercises import Exercise, describe, run, verdict
from tests.lib.study.exercise_answers import known_mistakes, margin


def _checks() -> dict[str, tuple[Callable, Exercise]]:
    """Chapter and name of a check → the check and its exercise, known by the hint that the check prints."""
    found = {}
    for chapter in pkgutil.iter_modules(exercises.__path__, f"{exercises.__name__}."):
        package = importlib.import_module(chapter.name)
        by_hint = {f"Not answered yet. {x.hint}\n": x for x in vars(package).values() if isinstance(x, Exercise)}
        own = [f for f in vars(package).values() if isinstance(f, FunctionType) and f.__module__ == chapter.name]
        for function in own if chapter.ispkg else ():
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                function(None)
            if printed.getvalue() in by_hint:  # else it checks a table
                name = f"{chapter.name.rpartition('.')[2]}.{function.__name__}"
                found[name] = function, by_hint.pop(printed.getvalue())
        assert not by_hint, f"{chapter.name} has exercises without a check"
    return found


CHECKS = _checks()
EXERCISES = {name: exercise for name, (_, exercise) in CHECKS.items()}

every_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
every_check = pytest.mark.parametrize(("check", "exercise"), CHECKS.values(), ids=CHECKS)


def test_the_exercises_are_found():
    assert {name.partition(".")[0] for name in CHECKS} >= {"self_attention", "multi_head", "positional_encoding", "masks"}
    assert len(CHECKS) >= 19


# ---- not answered yet


def dots(*args): ...


def with_docstring_alone(*args):
    """My answer."""


def with_open_values(*args):
    scores = ...
    return torch.softmax(scores, dim=-1)


def with_an_open_result(*args):
    mask = ...
    return mask


def with_open_values_and_no_return(*args):
    scores = ...
    weights = ...  # noqa: F841
    del scores


def not_implemented(*args):
    raise NotImplementedError


OPEN = [dots, with_docstring_alone, with_open_values, with_an_open_result, with_open_values_and_no_return, not_implemented]


@every_check
def test_an_exercise_without_an_answer_prints_the_hint_alone(check, exercise, capsys):
    for answer in (None, ..., *OPEN, lambda *args: ...):
        for _ in range(2):
            check(answer)
            out, err = capsys.readouterr()
            assert (out, err) == (f"Not answered yet. {exercise.hint}\n", ""), answer


@every_check
def test_what_is_not_a_function_gets_a_sentence_and_no_error(check, exercise, capsys):
    for answer in (7, "q @ k", torch.ones(2, 2), [1]):
        check(answer)
        assert "takes a function" in capsys.readouterr().out


def without_return(*args):
    sum(range(3))


@every_check
def test_a_forgotten_return_is_told_from_an_empty_body(check, exercise, capsys):
    check(without_return)
    assert "returns None: end it with a return" in capsys.readouterr().out


def failing(*args):
    raise ValueError("first line\nsecond line")


@every_check
def test_an_answer_that_raises_gives_one_line_and_advice_on_shapes(check, exercise, capsys):
    check(failing)
    text = capsys.readouterr().out
    assert "it raises ValueError: first line. " in text
    assert text.endswith(f"{exercise.shapes}\n")
    assert text.count("\n") == 1


# ---- known wrong versions


@pytest.mark.parametrize(("name", "mistake"), known_mistakes(EXERCISES))
def test_every_known_wrong_version_is_recognized_as_itself(name, mistake):
    text = verdict(EXERCISES[name], mistake.version)
    assert text.startswith("Not yet. With ")
    assert text.endswith(f" {mistake.advice}")


@every_exercise
def test_the_inputs_tell_right_and_wrong_versions_apart_by_far_more_than_rounding(exercise):
    versions = [(exercise.right, None), *((m.version, m.advice) for m in exercise.mistakes)]
    for i, (one, advice) in enumerate(versions):
        for other, same_advice in versions[:i]:
            if advice != same_advice:
                assert margin(exercise, one, other) > 1e-2, (advice, same_advice)


# ---- what a check must never do


@every_exercise
def test_a_check_leaves_the_global_generator_alone_and_says_the_same_twice(exercise):
    torch.manual_seed(3)
    state = torch.get_rng_state()
    asked = exercise.mistakes[:3]
    texts = {verdict(exercise, mistake.version) for mistake in asked for _ in range(2)}
    assert len(texts) == len(asked) > 1
    assert torch.equal(torch.get_rng_state(), state)


@every_exercise
def test_cases_differ_in_their_sizes_and_no_answer_can_spoil_them(exercise):
    def spoil(*args):
        for x in args:
            if isinstance(x, torch.Tensor):
                x.zero_()

    before = exercise.cases()
    for case in before:
        run(spoil, case)
    for case, fresh in zip(before, exercise.cases(), strict=True):
        for a, b in zip(case.values(), fresh.values(), strict=True):
            assert not isinstance(a, torch.Tensor) or torch.equal(a, b)
    assert len({describe(case) for case in before}) >= 2
