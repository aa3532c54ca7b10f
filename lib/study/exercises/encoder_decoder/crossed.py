"""Exercise: the mask of cross-attention, which takes its padding from the source."""

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake
from lib.study.exercises.masks.truth import as_numbers


def _rows(tokens: Tensor, L: int, pad: int) -> Tensor:
    """Real tokens (B, S) for each of L queries, (B, 1, L, S)."""
    return (tokens != pad)[:, None, None].expand(-1, -1, L, -1)


def right(source: Tensor, target: Tensor, pad: int) -> Tensor:
    """source (B, S), target (B, L) -> (B, 1, L, S)."""
    return _rows(source, target.size(1), pad)


def _both(source: Tensor, target: Tensor, pad: int) -> Tensor:
    return right(source, target, pad) & (target != pad)[:, None, :, None]


def _cases() -> list[Case]:
    source = torch.tensor([[5, 6, 7, 8], [5, 6, 0, 0], [9, 0, 0, 0]])
    target = torch.tensor([[4, 5, 6], [4, 0, 0], [4, 5, 0]])
    square = torch.tensor([[4, 5, 6, 7], [4, 0, 0, 0], [4, 5, 5, 0]])
    return [{"source": source, "target": square, "pad": 0}, {"source": source, "target": target, "pad": 0}]


CROSSED = Exercise(
    hint="Which letters are real? source != pad, (B, S). Then two axes in the middle: every head, and each of L queries.",
    why="Keys and values are the source's, so it is the source's padding that must be hidden. No triangle: the whole source is "
    "known before the first target token is written.",
    shapes="The mask is (B, 1, L, S): batch, head, query, key. Queries are of the target, keys of the source.",
    next_step="Take a source of 2 real letters in 4: each of its L rows is True, True, False, False.",
    right=as_numbers(right),
    cases=_cases,
    mistakes=(
        Mistake(
            as_numbers(lambda source, target, pad: _rows(target, target.size(1), pad)),
            "The padding is the target's. The keys of cross-attention are the source's tokens, so it has to be the source's.",
        ),
        Mistake(
            as_numbers(lambda source, target, pad: right(source, target, pad).tril(source.size(1) - target.size(1))),
            "A causal triangle. The whole source is there before the first token is written: nothing of it is the future.",
        ),
        Mistake(
            as_numbers(lambda source, target, pad: right(source, target, pad).tril()),
            "A causal triangle. Target place t may look at every letter, also at those behind letter t.",
        ),
        Mistake(
            as_numbers(lambda source, target, pad: ~right(source, target, pad)),
            "The mask is inverted. True means may attend: real letters are True.",
        ),
        Mistake(
            as_numbers(lambda source, target, pad: right(source, target, pad).mT),
            "Queries and keys are swapped: the last axis is the keys, which are the source's.",
        ),
        Mistake(
            as_numbers(_both),
            "Rows of target padding are empty. Nobody reads what comes out there, so they need no mask; and an empty row is "
            "NaN in many implementations.",
        ),
        Mistake(
            as_numbers(lambda source, target, pad: right(source, target, pad)[:, 0]),
            "Right numbers, three axes. Beside scores (B, H, L, S), the axis of the heads is missing.",
        ),
        Mistake(
            as_numbers(lambda source, target, pad: torch.ones(len(source), 1, target.size(1), source.size(1)).bool()),
            "Nothing is hidden. Short words are padded, and a padding letter would be attended to.",
        ),
    ),
)
