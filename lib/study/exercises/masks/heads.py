"""Exercise 5: two bugs in four lines. From torch's padding mask to one mask for each head of each sequence."""

import torch
from torch import Tensor

from lib.study.exercises import Exercise, Mistake
from lib.study.exercises.masks.truth import as_numbers


def _right(ignore: Tensor, num_heads: int, L: int) -> Tensor:
    return (~ignore)[:, None, :].expand(-1, L, -1).repeat_interleave(num_heads, dim=0)


def _cases() -> list:
    ignore = torch.arange(4) >= torch.tensor([4, 2, 1])[:, None]  # (3, 4)
    return [{"ignore": ignore, "num_heads": 2, "L": 5}, {"ignore": ignore[1:, :3], "num_heads": 3, "L": 2}]


HEADS_MASK = Exercise(
    hint="Run the broken version on two sequences with two heads, and look at the mask of each of the four.",
    why="Both bugs keep every shape, and the second needs a batch of two to show: tests with one sequence never see it.",
    shapes="ignore is (B, S), the answer (B·H, L, S): the H heads of a sequence are neighbors on the first axis.",
    next_step="Look at one sequence at a time: all H masks of sequence b are alike, and True where ignore[b] is False.",
    right=as_numbers(_right),
    cases=_cases,
    mistakes=(
        Mistake(
            as_numbers(lambda ignore, H, L: ignore[:, None, :].expand(-1, L, -1).repeat(H, 1, 1)),
            "Both bugs are still there. What does True mean on the way in, and on the way out? And whose mask is number 1?",
        ),
        Mistake(
            as_numbers(lambda ignore, H, L: (~ignore)[:, None, :].expand(-1, L, -1).repeat(H, 1, 1)),
            "True is right now. The order is not: repeat lays the whole batch out H times, so mask 1 belongs to sequence 1 "
            "and is used by head 1 of sequence 0. repeat_interleave keeps the heads of a sequence together.",
        ),
        Mistake(
            as_numbers(lambda ignore, H, L: ignore[:, None, :].expand(-1, L, -1).repeat_interleave(H, dim=0)),
            "The order is right now. True is not: it comes in as ignore and has to go out as may attend.",
        ),
        Mistake(
            as_numbers(lambda ignore, H, L: _right(ignore, H, L).mT),
            "Queries and keys are swapped: the last axis is the keys.",
        ),
        Mistake(
            as_numbers(lambda ignore, H, L: _right(ignore, H, L).unflatten(0, (-1, H))),
            "Right numbers on four axes. Here the heads are joined with the batch: (B·H, L, S).",
        ),
    ),
)
