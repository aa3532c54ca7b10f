"""Automatic checks of exercises: a check runs the reader's function, prints a verdict with advice, and raises nothing.

A wrong answer is recognized by its numbers. Beside the right function an exercise lists *known wrong versions*; the reader's
function and all of these meet the same random inputs, and where one of them gives what the reader's gives, its advice is
printed. An answer that matches none gets what was measured and a next step. Each chapter has a module here with its
exercises, `self_attention` the first; this file is what they share, `table.py` the same for tables of shapes.

    from lib.study.exercises import self_attention as check
    check.attention_weights(attention_weights)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Case = dict[str, Any]  # the arguments of one call, in order, by name

# A wrong version is off by 10⁻² and more in at least one case; float32 and another order of sums, by about 10⁻⁶.
RTOL, ATOL = 1e-4, 1e-5


@dataclass(frozen=True)
class Mistake:
    """A known wrong version. It takes what the answer takes, and may raise where the answer would."""

    version: Callable[..., Any]
    advice: str


@dataclass(frozen=True)
class Exercise:
    """One exercise whose answer is a function.

    Args:
        hint: what to write, for a reader who has not begun.
        why: one sentence on why it matters, for a reader who got it right.
        shapes: advice on shapes, after an answer that raises.
        next_step: what to look at, after a wrong answer that no known mistake explains.
        right: the right function; returns a tensor, or a tuple of tensors named by `parts`.
        mistakes: known wrong versions, the likeliest first.
        cases: makes the inputs, always the same ones.
        parts: names of the tensors where the answer is a tuple.
        facts: measures the output of one case in words, beside what is measured of every answer.
    """

    hint: str
    why: str
    shapes: str
    next_step: str
    right: Callable[..., Any]
    mistakes: Sequence[Mistake]
    cases: Callable[[], list[Case]]
    parts: tuple[str, ...] = ()
    facts: Callable[[Case, Tensor], str] | None = None


@dataclass(frozen=True)
class Answer:
    """What a function made of one case: a value or an error, and the names of the inputs that it overwrote."""

    value: Any = None
    error: Exception | None = None
    changed: tuple[str, ...] = ()


def check(exercise: Exercise, answer: Any) -> None:
    """Print the verdict on the reader's function. `None` and `...` are answers not given yet."""
    print(verdict(exercise, answer))


def verdict(exercise: Exercise, answer: Any) -> str:
    """The text that `check` prints: "Not answered yet. …", "Right. …" or "Not yet. …"."""
    if answer is None or answer is ...:
        return f"Not answered yet. {exercise.hint}"
    if not callable(answer):
        return (
            f"Not yet. This check takes a function, and got a {type(answer).__name__}. "
            "Pass the name of your function alone, without calling it."
        )
    cases = exercise.cases()
    answers = [run(answer, case) for case in cases]
    if any(_is_blank(answer, given) for given in answers):
        return f"Not answered yet. {exercise.hint}"
    if any(given.error is None and given.value is None for given in answers):
        return "Not yet. Your function returns None: end it with a return."

    changed = sorted({name for given in answers for name in given.changed})
    if changed:
        return (
            f"Not yet. Your function overwrites its input {', '.join(changed)}, which still belongs to whoever called it. "
            "Methods that end in _ and operators like += work in place: use the form that returns a new tensor."
        )
    wanted = [run(exercise.right, case) for case in cases]
    pairs = list(zip(answers, wanted, strict=True))
    wrong = next((i for i, (given, want) in enumerate(pairs) if not same(given, want)), None)
    if wrong is None:
        return f"Right. {exercise.why}"

    found = _measure(exercise, cases[wrong], *pairs[wrong])
    mistake = _recognize(exercise, cases, answers, wrong)
    if mistake:
        return f"Not yet. {found} {mistake.advice}"
    return f"Not yet. {found} {exercise.shapes if answers[wrong].error else exercise.next_step}"


def run(function: Callable[..., Any], case: Case) -> Answer:
    """Call a function with copies of the inputs, and note which of the copies it changed."""
    copies = {name: x.clone() if isinstance(x, Tensor) else x for name, x in case.items()}
    value, error = None, None
    try:
        value = function(*copies.values())
    except Exception as caught:  # whatever the reader's code raises is an answer too
        error = caught
    changed = tuple(name for name, x in case.items() if isinstance(x, Tensor) and not _unchanged(copies[name], x))
    return Answer(value, error, changed)


def same(given: Answer, other: Answer) -> bool:
    """Whether two functions made the same of a case: equal values up to rounding, NaN in equal places, or both an error."""
    if given.error or other.error:
        return bool(given.error and other.error)
    return _close(given.value, other.value)


def describe(case: Case) -> str:
    """The inputs in a few words: "query (5, 4), key (5, 4)"."""
    return ", ".join(f"{name} {tuple(x.shape) if isinstance(x, Tensor) else x}" for name, x in case.items())


def random_tensor(*shape: int, seed: int) -> Tensor:
    """Standard normal numbers of a generator of its own: the reader's seed is left alone."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _recognize(exercise: Exercise, cases: list[Case], answers: list[Answer], wrong: int) -> Mistake | None:
    """The known mistake that makes of every case what the answer makes of it, or else of the first case that is wrong.

    The second catches the first of two mistakes in one answer, where another spoils other cases. Two errors in one case are
    no evidence, two equal sets of numbers are.
    """
    made = [(mistake, [run(mistake.version, case) for case in cases]) for mistake in exercise.mistakes]
    for mistake, results in made:
        if all(map(same, answers, results)):
            return mistake
    for mistake, results in made:
        if not answers[wrong].error and same(answers[wrong], results[wrong]):
            return mistake
    return None


def _close(given: Any, want: Any) -> bool:
    if isinstance(want, tuple):
        pairs = isinstance(given, (tuple, list)) and len(given) == len(want)
        return pairs and all(_close(a, b) for a, b in zip(given, want, strict=True))
    if not isinstance(given, Tensor) or given.shape != want.shape or given.is_complex():
        return False
    return torch.allclose(given.detach().double(), want.detach().double(), rtol=RTOL, atol=ATOL, equal_nan=True)


def _unchanged(copy: Tensor, original: Tensor) -> bool:
    return copy.shape == original.shape and copy.dtype == original.dtype and torch.equal(copy, original)


def _is_blank(function: Callable[..., Any], given: Answer) -> bool:
    """Whether the body is still to be written: it does nothing, or meets a `...` that stands for a value."""
    if given.error:
        return isinstance(given.error, NotImplementedError) or "ellipsis" in str(given.error)
    code = getattr(function, "__code__", None)
    if given.value is not None or code is None:
        return given.value is ...
    # Instructions and their arguments alternate; the arguments differ with a docstring, the instructions do not.
    return code.co_code[::2] == _blank.__code__.co_code[::2] or ... in code.co_consts


def _blank(): ...


def _measure(exercise: Exercise, case: Case, given: Answer, want: Answer) -> str:
    """What is wrong with one case, as one sentence of facts."""
    start = f"With {describe(case)}: "
    if given.error:
        lines = str(given.error).strip().splitlines() or ["no message"]
        return f"{start}it raises {type(given.error).__name__}: {lines[0].rstrip('.')}."
    if not isinstance(want.value, tuple):
        facts = _compare("it", given.value, want.value)
        if exercise.facts and isinstance(given.value, Tensor) and given.value.shape == want.value.shape:
            facts = f"{exercise.facts(case, given.value.detach())}; {facts}"
        return f"{start}{facts}."
    if not isinstance(given.value, (tuple, list)) or len(given.value) != len(want.value):
        what = f"{len(given.value)} values" if isinstance(given.value, (tuple, list)) else f"a {type(given.value).__name__}"
        return f"{start}it returns {what}, not the {len(want.value)} tensors {', '.join(exercise.parts)}."
    wrong = [
        _compare(name, a, b) for name, a, b in zip(exercise.parts, given.value, want.value, strict=True) if not _close(a, b)
    ]
    return f"{start}{'; '.join(wrong)}."


def _compare(name: str, given: Any, want: Tensor) -> str:
    if not isinstance(given, Tensor):
        return f"{name} is a {type(given).__name__}, not a tensor"
    if given.shape != want.shape:
        return f"{name} has shape {tuple(given.shape)}, not {tuple(want.shape)}"
    missing = int(given.isnan().sum())
    if missing:
        return f"{name} is NaN in {missing} of {given.numel()} places"
    return f"{name} differs from the right values by up to {float((given - want).abs().max()):.2g}"
