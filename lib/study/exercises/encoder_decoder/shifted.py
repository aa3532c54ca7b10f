"""Exercise: what the decoder reads in training, the labels one place to the right."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake


def right(labels: Tensor, begin: int) -> Tensor:
    """labels (B, L) -> (B, L)."""
    return F.pad(labels[:, :-1], (1, 0), value=begin)


def _cases() -> list[Case]:
    a = torch.tensor([[7, 8, 9, 2], [5, 6, 2, 0], [4, 2, 0, 0]])  # 2 is END, 0 is padding
    b = torch.tensor([[3, 4, 2], [9, 9, 2], [8, 2, 0]])
    return [{"labels": a, "begin": 1}, {"labels": b, "begin": 6}, {"labels": a[:2, :2], "begin": 1}]


SHIFTED = Exercise(
    hint="At place t the decoder reads the label of place t − 1. At the first place there is none: it reads begin.",
    why="So place t is asked for label t and has seen the labels before it alone. Where input and label are the same, the loss "
    "goes to 0 and nothing is learned.",
    shapes="labels is (B, L) and so is the answer: one column of begin in front, the last column of labels left out.",
    next_step="Write down one row by hand: labels 7 8 9 2 with begin 1 are read as 1 7 8 9.",
    right=right,
    cases=_cases,
    mistakes=(
        Mistake(
            lambda labels, begin: labels,
            "The labels are not shifted: each place reads its own answer. The loss would go to 0, and the model could not "
            "write one word.",
        ),
        Mistake(
            lambda labels, begin: F.pad(labels[:, 1:], (0, 1), value=begin),
            "The labels are shifted to the left: each place reads the label after its own. They go to the right.",
        ),
        Mistake(
            lambda labels, begin: labels.roll(1, dims=1),
            "roll brings the last column round to the front. The first place reads begin.",
        ),
        Mistake(
            lambda labels, begin: F.pad(labels[:, :-1], (1, 0)),
            "The first place reads 0, which is padding here. It reads begin.",
        ),
        Mistake(
            lambda labels, begin: F.pad(labels, (1, 0), value=begin),
            "One column too many. The last label is read by nobody: nothing comes after it.",
        ),
        Mistake(
            lambda labels, begin: torch.cat([torch.full_like(labels[:, :1], begin), labels[:, 1:]], dim=1),
            "begin stands in the place of the first label, and the others have not moved: they still read their own answer.",
        ),
        Mistake(
            lambda labels, begin: F.pad(labels[:-1], (0, 0, 1, 0), value=begin),
            "The rows are shifted, so each word reads the word before it. The places are axis 1.",
        ),
    ),
)
