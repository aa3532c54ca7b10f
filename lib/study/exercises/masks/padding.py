"""Exercise 2: the padding mask, with an axis for every head and every query."""

import torch
from torch import Tensor

from lib import masks
from lib.study.exercises import Exercise, Mistake
from lib.study.exercises.masks.truth import as_numbers


def _real(lengths: Tensor, S: int) -> Tensor:
    return torch.arange(S) < lengths[:, None]  # (B, S)


PADDING_MASK = Exercise(
    hint="Compare the positions 0 … S − 1 with each length, which gives (B, S); then put in two axes: (B, 1, 1, S).",
    why="Key padding hangs on batch and key alone; the two axes of 1 stand for every head and every query.",
    shapes="The mask is (B, 1, 1, S): batch, head, query, key. real[:, None, None, :] puts in the two axes in the middle.",
    next_step="Look at one sequence of 3 real tokens in 5: its keys are True, True, True, False, False.",
    right=as_numbers(masks.padding),
    cases=lambda: [
        {"lengths": torch.tensor([5, 3, 1]), "S": 5},
        {"lengths": torch.tensor([2, 4]), "S": 6},
        {"lengths": torch.tensor([3, 0, 3]), "S": 3},
    ],
    mistakes=(
        Mistake(
            as_numbers(_real),
            "Right numbers, two axes. Beside scores (B, H, L, S), torch would read (B, S) as (L, S): queries for sequences.",
        ),
        Mistake(
            as_numbers(lambda n, S: _real(n, S)[:, None, :, None]),
            "That hides queries, and every key stays in sight. The keys are the last axis.",
        ),
        Mistake(
            as_numbers(lambda n, S: ~_real(n, S)[:, None, None]),
            "The mask is inverted. True means may attend, so real tokens are True. torch's key_padding_mask is the other way.",
        ),
        Mistake(
            as_numbers(lambda n, S: torch.arange(S) <= n[:, None, None, None]),
            "One token of padding stays in sight: positions count from 0, so a real one is less than the length.",
        ),
        Mistake(
            as_numbers(lambda n, S: _real(n, S)[:, None]),
            "Three axes, (B, 1, S): it would be read as (H, L, S). Put in one more, for the heads.",
        ),
        Mistake(
            as_numbers(lambda n, S: _real(n, S)[None, None]),
            "The new axes stand in front: (1, 1, B, S) gives each query another length. Batch comes first.",
        ),
        Mistake(
            as_numbers(lambda n, S: _real(n, S)[:, None, None, :] & _real(n, S)[:, None, :, None]),
            "The queries of the padding are hidden too, which leaves them rows without any key. Only keys need hiding.",
        ),
    ),
)
