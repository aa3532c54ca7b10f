"""Exercise 3: a causal window of W keys, the query itself included."""

import torch
from torch import Tensor

from lib import masks
from lib.study.exercises import Exercise, Mistake
from lib.study.exercises.masks.truth import as_numbers


def _behind(n: int) -> Tensor:
    """(n, n) how far key j lies behind query i."""
    return torch.arange(n)[:, None] - torch.arange(n)


WINDOW_MASK = Exercise(
    hint="Write down how far key j lies behind query i, i − j. Allowed is 0 up to window − 1.",
    why="A window of W counts the query itself; implementations disagree by one here, and W = 1 is the test that tells.",
    shapes="The mask is (n, n): torch.arange(n)[:, None] − torch.arange(n) is how far each key lies behind each query.",
    next_step="Try window = 1: each query sees itself and nothing else. And window = n is the whole causal mask.",
    right=as_numbers(masks.sliding_window),
    cases=lambda: [{"n": n, "window": w} for n, w in ((6, 3), (5, 1), (4, 4), (7, 2))],
    mistakes=(
        Mistake(
            as_numbers(lambda n, w: (_behind(n) >= 0) & (_behind(n) <= w)),
            "One key too many: a query and the w keys before it are w + 1 keys. The query itself counts.",
        ),
        Mistake(
            as_numbers(lambda n, w: (_behind(n) > 0) & (_behind(n) <= w)),
            "The query itself is left out, and the first row is empty. The window begins at the query.",
        ),
        Mistake(
            as_numbers(lambda n, w: _behind(n) < w),
            "The near past is right, and the whole future is in sight. Join it with the causal mask, by &.",
        ),
        Mistake(
            as_numbers(lambda n, w: _behind(n).abs() < w),
            "The window is open on both sides, so it shows the future. Causal: i − j is at least 0.",
        ),
        Mistake(
            as_numbers(lambda n, w: _behind(n).abs() <= w // 2),
            "The window is centered on the query, which shows the future. A causal window lies behind it.",
        ),
        Mistake(
            as_numbers(lambda n, w: (_behind(n) < 0) | (_behind(n) >= w)),
            "The mask is inverted. True means may attend.",
        ),
        Mistake(
            as_numbers(lambda n, w: (_behind(n) >= 0) | (_behind(n) < w)),
            "| allows what either allows. Both have to allow it: &.",
        ),
        Mistake(as_numbers(lambda n, w: _behind(n) >= 0), "That is the causal mask. The window hides the far past too."),
        Mistake(
            as_numbers(lambda n, w: ((_behind(n) >= 0) & (_behind(n) < w)).T),
            "Rows and columns are swapped: each query sees what comes after it. A row belongs to a query.",
        ),
    ),
)
