"""Exercise 3: a wrong scale and a dropout that does not ask for the mode, in one function."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _cases() -> list[Case]:
    """In eval dropout must not be seen at all; in training at p = 0.5 the values show which weights were dropped."""
    made = []
    for i, (shape, p, training) in enumerate(
        (((2, 2, 5, 4), 0.5, False), ((2, 2, 5, 4), 0.0, True), ((2, 3, 8, 16), 0.5, True), ((1, 3, 4, 16), 0.9, False))
    ):
        tensors = {name: random_tensor(*shape, seed=90 + 3 * i + j) for j, name in enumerate(("q", "k", "v"))}
        if training and p:
            tensors["v"] = torch.eye(shape[2]).repeat(1, 2).expand(shape).clone()
        made.append(tensors | {"p": p, "training": training})
    return made


class Seeded:
    """A function that always draws the same random numbers, and leaves everybody else's alone.

    Where weights are dropped, its output is replaced by that of a fixed draw (`redrawn`): so answers agree whatever random
    numbers they use, and however they draw them.
    """

    def __init__(self, answer: Callable[..., Any]):
        self.answer = answer
        self.__code__ = getattr(answer, "__code__", None)  # by which an empty answer is told from a wrong one

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, p: float, training: bool) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            output = self.answer(q, k, v, p, training)
        weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(dim=-1)
        wanted = isinstance(output, Tensor) and output.shape == v.shape and training and 0 < p < 1
        return redrawn(output, weights) if wanted else output


def redrawn(output: Tensor, weights: Tensor) -> Tensor:
    """What an answer would give if every second weight were dropped, for v (B, H, L, 2·L) that holds the identity twice.

    An output (B, H, L, 2·L) then shows the weights that were kept, twice. It is redrawn if each weight was dropped or kept by
    itself, and all that were kept are one number times weights (B, H, L, L). Else it is returned as it is.
    """
    one, other = output.chunk(2, dim=-1)
    kept = one != 0
    if kept.all() or not kept.any() or not torch.equal(one, other):
        return output
    factor = (one / weights)[kept]
    whole = any((kept == kept.narrow(dim, 0, 1)).all() for dim in (-1, -2))  # whole rows or columns together
    if whole or not torch.allclose(factor, factor.mean().expand_as(factor), rtol=1e-3):
        return output
    every_second = torch.arange(weights.numel()).view_as(weights) % 2
    return (factor.mean() * weights * every_second).repeat(1, 1, 1, 2)


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


def _unscaled(weights: Tensor, p: float, training: bool) -> Tensor:
    return weights * (torch.rand_like(weights) >= p) if training else weights


def _on(what: str) -> Callable[..., Any]:
    """A version with the right scale that drops entries of the "output" or of the "values" instead of weights."""

    def attend(q: Tensor, k: Tensor, v: Tensor, p: float, training: bool) -> Tensor:
        weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(dim=-1)
        if what == "values":
            return weights @ F.dropout(v, p, training)
        return F.dropout(weights @ v, p, training)

    return seeded(attend)


ATTEND = Exercise(
    hint="Which way should √d act on the scores? And what must F.dropout be told?",
    why="Both bugs keep every shape and both let the model learn something: only a look at scores and modes finds them.",
    shapes="q, k and v are (B, H, L, d): the scores are q @ k.mT, (B, H, L, L), the output (B, H, L, d) again.",
    next_step="Compare with F.scaled_dot_product_attention(q, k, v) at p = 0. In eval p may not matter. In training each "
    "weight is 0 with probability p, by itself, and 1 / (1 − p) times as large otherwise: take the identity for v, and look.",
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
            _on("output"),
            "You drop numbers of the output, after the values were added up. It is weights that are dropped, before.",
        ),
        Mistake(
            _on("values"),
            "You drop numbers of v: a number that is dropped is then missing for every query. It is weights that are dropped, "
            "for each query by itself.",
        ),
        Mistake(
            _attend(drop=_unscaled),
            "What is kept must grow by 1 / (1 − p), as F.dropout does it: else the weights add up to 1 − p in training and "
            "to 1 in eval.",
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
