"""Exercise 3: the positions of the tokens in a batch that is padded on the left."""

import torch
from torch import Tensor

from lib.positional import positions_from_padding
from lib.study.exercises import Case, Exercise, Mistake


def _real(*padding: int, S: int) -> Case:
    """A batch of sequences behind so many tokens of padding, in rows of S."""
    return {"real": torch.arange(S) >= torch.tensor(padding)[:, None]}


def _cases() -> list[Case]:
    # The last batch has as many sequences as columns, and an empty one.
    return [_real(0, 2, S=5), _real(3, S=4), _real(0, 1, 4, 2, S=4)]


def _count(real: Tensor, dim: int = -1) -> Tensor:
    return real.long().cumsum(dim)


def _columns(real: Tensor) -> Tensor:
    return torch.arange(real.size(1)).expand(real.shape)


def _padding(real: Tensor) -> Tensor:
    return (~real).sum(dim=1, keepdim=True)


POSITIONS = Exercise(
    hint="Count the real tokens from the left, real.long().cumsum(dim=-1), take 1 away, and do not let it fall below 0.",
    why="Padding is a matter of the batch. A sentence has to come out the same whatever stands beside it in the batch.",
    shapes="real is (B, S), and so is the answer: one number for each column of each sequence.",
    next_step="The first real token of every row has position 0, the next one 1, and so on. Padding has 0.",
    right=lambda real: positions_from_padding(real[:, None, None]),
    cases=_cases,
    mistakes=(
        Mistake(
            _columns,
            "Those are the numbers of the columns. A padded sequence begins at a later column, but its first token is still "
            "token 0.",
        ),
        Mistake(
            _count,
            "Your count begins with 1. The first token stands at position 0: take 1 away, and keep 0 at the padding.",
        ),
        Mistake(
            lambda real: _count(real) - 1,
            "The padding gets −1. A learned table would read its last row there, or fail: .clamp(min=0).",
        ),
        Mistake(
            lambda real: _columns(real) - _padding(real),
            "The padding gets negative numbers, which no table has: .clamp(min=0).",
        ),
        Mistake(
            lambda real: (_count(real, dim=0) - 1).clamp(min=0),
            "You count down the batch. Count along each sequence: dim=-1.",
        ),
        Mistake(
            lambda real: torch.cumsum(~real, dim=-1),
            "You count the padding. Count the real tokens.",
        ),
        Mistake(
            lambda real: _columns(real) * real,
            "The padding is 0 now, but the real tokens still have the numbers of their columns. Their first one is 0.",
        ),
        Mistake(
            lambda real: _columns(real).flip(-1) * real,
            "You count from the end, backwards. Positions rise from left to right.",
        ),
    ),
)
