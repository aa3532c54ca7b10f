"""Exercise 1: what the online softmax holds of two parts of the keys becomes what it holds of both."""

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor

State = tuple[Tensor, Tensor, Tensor]


def _held(scores: Tensor, values: Tensor) -> State:
    """m (n, 1), l (n, 1) and o (n, d_v) after these keys; −∞, 0 and 0 if there are none."""
    if not scores.size(1):
        n = len(scores)
        return torch.full((n, 1), -torch.inf), torch.zeros(n, 1), torch.zeros(n, values.size(1))
    peak = scores.amax(dim=-1, keepdim=True)
    weights = (scores - peak).exp()
    return peak, weights.sum(dim=-1, keepdim=True), weights @ values


def _cases() -> list[Case]:
    """Parts of several sizes, one of them empty in two cases, and scores about 1000 in the last."""
    cases = []
    sizes = ((4, 3, 5, 2, 0), (1, 1, 1, 1, 0), (5, 2, 4, 3, 0), (3, 4, 0, 2, 0), (2, 0, 3, 2, 0), (3, 2, 3, 2, 1000))
    for i, (n, first, second, width, shift) in enumerate(sizes):
        scores = [shift + 2 * random_tensor(n, keys, seed=60 + 10 * i + j) for j, keys in enumerate((first, second))]
        values = [random_tensor(keys, width, seed=65 + 10 * i + j) for j, keys in enumerate((first, second))]
        parts = [_held(*part) for part in zip(scores, values, strict=True)]
        cases.append(dict(zip(("m1", "l1", "o1", "m2", "l2", "o2"), (*parts[0], *parts[1]), strict=True)))
    return cases


def _with(factors, *, peak=torch.maximum):
    """A version that multiplies what each part holds by a factor; `factors` makes them from m1, m2 and the new m."""

    def version(m1, l1, o1, m2, l2, o2):
        m = peak(m1, m2)
        first, second = factors(m1, m2, m)
        return m, first * l1 + second * l2, first * o1 + second * o2

    return version


def right(m1, l1, o1, m2, l2, o2) -> State:
    """The merged state, as it should be."""
    m = torch.maximum(m1, m2)
    first, second = (m1 - m).exp(), (m2 - m).exp()
    return m, first * l1 + second * l2, first * o1 + second * o2


def _l_alone(m1, l1, o1, m2, l2, o2) -> State:
    m, total, _ = right(m1, l1, o1, m2, l2, o2)
    return m, total, o1 + o2


def _divided(m1, l1, o1, m2, l2, o2) -> State:
    m, total, output = right(m1, l1, o1, m2, l2, o2)
    return m, total, output / total


def _first_alone(m1, l1, o1, m2, l2, o2) -> State:
    m = torch.maximum(m1, m2)
    return m, (m1 - m).exp() * l1 + l2, (m1 - m).exp() * o1 + o2


def _at_zero(m1, l1, o1, m2, l2, o2) -> State:
    m = torch.maximum(m1, m2)
    first, second = m1.exp(), m2.exp()
    return m, (first * l1 + second * l2) / m.exp(), (first * o1 + second * o2) / m.exp()


def _from_the_first(m1, l1, o1, m2, l2, o2) -> State:
    m, shift = torch.maximum(m1, m2), (m2 - m1).exp()
    back = (m1 - m).exp()
    return m, (l1 + shift * l2) * back, (o1 + shift * o2) * back


def _from_the_second(m1, l1, o1, m2, l2, o2) -> State:
    return _from_the_first(m2, l2, o2, m1, l1, o1)


BIG = "That holds for small scores. Here e^m alone overflows: form e^(own m − new m), which is never above 1."
EMPTY = "A part without keys holds m = −∞, and ∞ or NaN comes out. Measure both parts against the larger m, which is finite."

MERGE = Exercise(
    hint="The new m is the larger of both. What each part holds was measured against its own m: multiply its l and its o by "
    "e^(own m − new m), then add.",
    why="So the parts may be read in any order, also at the same time by several processors, and joined at the end.",
    shapes="m and l are (n, 1), o is (n, d_v): a factor of shape (n, 1) fits both. Return the tuple (m, l, o).",
    next_step="Try two parts of one key each, scores 0 and 1: m is 1 and l is e⁻¹ + 1.",
    right=right,
    cases=_cases,
    parts=("m", "l", "o"),
    mistakes=(
        Mistake(
            _with(lambda m1, m2, m: (1.0, 1.0)),
            "The sums are added as they are. Each was measured against its own m: bring both to the new one first.",
        ),
        Mistake(_l_alone, "l is right. o was summed against the old m as well, and needs the same factors."),
        Mistake(
            _with(lambda m1, m2, m: ((m - m1).exp(), (m - m2).exp())),
            "The factors are upside down: what was summed against a smaller m is too large, and has to shrink.",
        ),
        Mistake(_divided, "o is divided already. It stays a sum until all parts are in; only the very end divides, o / l."),
        Mistake(
            _first_alone,
            "Only the first part is rescaled. The first one may hold the larger m, and then it is the second that shrinks.",
        ),
        Mistake(
            _with(lambda m1, m2, m: (m1.exp(), m2.exp())),
            "The factors are e^m, as if the sums were to be measured against 0. The new m has to come off: e^(own m − new m).",
        ),
        Mistake(
            _with(lambda m1, m2, m: ((m1 - m).exp(), (m2 - m).exp()), peak=torch.add),
            "The new m is a sum of both. It is the larger of both.",
        ),
        Mistake(
            _with(lambda m1, m2, m: ((m1 - m).exp(), (m2 - m).exp()), peak=torch.minimum),
            "The new m is the smaller of both, and the factors can overflow. It is the larger.",
        ),
        Mistake(
            _with(lambda m1, m2, m: (torch.exp2(m1 - m), torch.exp2(m2 - m))),
            "The factors are powers of 2. The sums hold powers of e.",
        ),
        Mistake(_at_zero, BIG),
        Mistake(_from_the_first, EMPTY),
        Mistake(_from_the_second, EMPTY),
    ),
)
