"""Exercise 2: a rotary encoding turns pairs of numbers, here in the half-split layout: (x0, x_{d/2}), (x1, x_{d/2+1}), …"""

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _cases() -> list[Case]:
    sizes = ((3, 2), (5, 8), (1, 6))
    return [{"x": random_tensor(n, d, seed=40 + n), "angles": 3 * random_tensor(n, d // 2, seed=50 + n)} for n, d in sizes]


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.chunk(2, dim=-1)


def _neighbors(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[:, 0::2], x[:, 1::2]


def _in_turn(parts: tuple[Tensor, Tensor]) -> Tensor:
    return torch.stack(parts, dim=-1).flatten(-2)


def _with(first, second, *, split=_halves, join=lambda parts: torch.cat(parts, dim=-1)):
    """A version from two formulas of the parts (a, b) of each pair and of cosine and sine."""

    def version(x: Tensor, angles: Tensor) -> Tensor:
        a, b = split(x)
        cos, sin = angles.cos(), angles.sin()
        parts = first(a, b, cos, sin), second(a, b, cos, sin)
        return join(parts)

    return version


def _a(a, b, cos, sin):
    return a * cos - b * sin


def _b(a, b, cos, sin):
    return b * cos + a * sin


TURNED = Exercise(
    hint="Of every pair (a, b) make (a·cos − b·sin, b·cos + a·sin). The a are the first half of each row, the b the second.",
    why="A turn keeps lengths, and two turned vectors have a dot product that depends on the difference of their angles alone.",
    shapes="a, b = x.chunk(2, dim=-1) are (n, d / 2), as the angles are. Put the results side by side: "
    "torch.cat((new_a, new_b), dim=-1) is (n, d).",
    next_step="Try angle 0, which changes nothing, and a quarter turn, π/2, which makes (0, 1) out of (1, 0).",
    right=_with(_a, _b),
    cases=_cases,
    mistakes=(
        Mistake(
            _with(lambda a, b, cos, sin: a * cos + b * sin, lambda a, b, cos, sin: b * cos - a * sin),
            "You turn the other way round. Against the clock, (1, 0) goes to (cos, sin).",
        ),
        Mistake(
            _with(_a, lambda a, b, cos, sin: b * cos + (a * cos - b * sin) * sin),
            "The second number is made from the first one's new value. Keep both old values until both new ones are made.",
        ),
        Mistake(
            _with(_a, _b, split=_neighbors, join=_in_turn),
            "Your pairs are neighbors: (x0, x1), (x2, x3), … Here they are halves: (x0, x_{d/2}), (x1, x_{d/2+1}), …",
        ),
        Mistake(
            _with(_a, _b, join=_in_turn),
            "The turned numbers come back in another order, first and second ones in turn. Put the halves side by side again.",
        ),
        Mistake(
            _with(_a, _b, split=_neighbors),
            "You take the pairs apart as neighbors, and put them together as halves. Both times they are halves.",
        ),
        Mistake(
            _with(lambda a, b, cos, sin: a * sin - b * cos, lambda a, b, cos, sin: b * sin + a * cos),
            "Sine and cosine are swapped: an angle of 0 has to leave x as it is.",
        ),
        Mistake(
            _with(lambda a, b, cos, sin: a * cos - b * sin, lambda a, b, cos, sin: b * cos - a * sin),
            "Both numbers have a minus, so the length changes. The second is b·cos + a·sin.",
        ),
        Mistake(
            _with(lambda a, b, cos, sin: a * cos, lambda a, b, cos, sin: b * sin),
            "Each number is only scaled. In a turn, both old numbers go into each new one.",
        ),
        Mistake(
            _with(lambda a, b, cos, sin: a + cos, lambda a, b, cos, sin: b + sin),
            "You add the encoding. Rotary encodings add nothing: they turn.",
        ),
        Mistake(
            _with(_a, lambda a, b, cos, sin: b),
            "Only the first number of each pair is turned.",
        ),
        Mistake(
            lambda x, angles: _with(_a, _b)(x, torch.deg2rad(angles)),
            "The angles are in radians, as torch takes them. Do not convert.",
        ),
    ),
)
