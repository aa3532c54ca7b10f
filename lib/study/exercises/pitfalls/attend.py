"""Exercise 3: a wrong scale and a dropout that does not ask for the mode, in one function."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _cases() -> list[Case]:
    """Dropout is random, but for probability 0 and 1, and must not be seen in eval at all."""
    made = []
    for i, (shape, p, training) in enumerate(
        (((2, 2, 5, 4), 0.5, False), ((2, 2, 5, 4), 0.0, True), ((1, 3, 4, 16), 1.0, True), ((1, 3, 4, 16), 0.9, False))
    ):
        tensors = {name: random_tensor(*shape, seed=90 + 3 * i + j) for j, name in enumerate(("q", "k", "v"))}
        made.append(tensors | {"p": p, "training": training})
    return made


class Seeded:
    """A function that always draws the same random numbers, and leaves everybody else's alone."""

    def __init__(self, answer: Callable[..., Any]):
        self.answer = answer
        self.__code__ = getattr(answer, "__code__", None)  # by which an empty answer is told from a wrong one

    def __call__(self, *args: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.answer(*args)


def seeded(answer: Any) -> Any:
    """The answer with random numbers that are always the same; what is no function stays as it is."""
    return Seeded(answer) if callable(answer) else answer


def _attend(*, scale=lambda d: 1 / math.sqrt(d), drop=lambda w, p, training: F.dropout(w, p, training), on_scores=False):
    """A version of the answer."""

    def attend(q: Tensor, k: Tensor, v: Tensor, p: float, training: bool) -> Tensor:
        scores = q @ k.mT * scale(q.size(-1))
        if on_scores:
            scores = drop(scores, p, training)
        weights = scores.softmax(dim=-1)
        return (weights if on_scores else drop(weights, p, training)) @ v

    return seeded(attend)


_UP = "The scores are still multiplied by √d. Divide them: else the softmax puts nearly all on one key from the start."
_NO = "There is no scale now. Divide the scores by √d, d the width of a head."
_ALWAYS = "Dropout still falls in eval: F.dropout drops unless it is told training=False."


def _always(weights: Tensor, p: float, training: bool) -> Tensor:
    return F.dropout(weights, p)


def _never(weights: Tensor, p: float, training: bool) -> Tensor:
    return weights


ATTEND = Exercise(
    hint="Which way should √d act on the scores? And what must F.dropout be told?",
    why="Both bugs keep every shape and both let the model learn something: only a look at scores and modes finds them.",
    shapes="q, k and v are (B, H, L, d): the scores are q @ k.mT, (B, H, L, L), the output (B, H, L, d) again.",
    next_step="Compare with F.scaled_dot_product_attention(q, k, v) at p = 0. In eval p may not matter, in training p = 1 "
    "leaves nothing.",
    right=_attend(),
    cases=_cases,
    mistakes=(
        Mistake(_attend(scale=math.sqrt, drop=_always), f"Both bugs are still there. {_UP} {_ALWAYS}"),
        Mistake(_attend(drop=_always), f"The scale is mended. {_ALWAYS}"),
        Mistake(_attend(scale=lambda d: 1.0, drop=_always), f"{_NO} {_ALWAYS}"),
        Mistake(_attend(drop=_never), "The dropout is gone in training too. It belongs there: pass it training."),
        Mistake(
            _attend(drop=lambda w, p, training: F.dropout(w, p, not training)),
            "Now it drops in eval and not in training: the other way round.",
        ),
        Mistake(
            _attend(on_scores=True),
            "You drop scores. A dropped score is 0, which is a score like any other: drop weights, after the softmax.",
        ),
        Mistake(
            _attend(scale=math.sqrt),
            f"The dropout is mended. {_UP}",
        ),
        Mistake(_attend(scale=lambda d: 1.0), _NO),
        Mistake(_attend(scale=lambda d: 1 / d), "You divide by d. The deviation of a sum of d products is √d: divide by that."),
        Mistake(_attend(scale=math.sqrt, drop=_never), f"The dropout is gone altogether, in training too. {_UP}"),
    ),
)
