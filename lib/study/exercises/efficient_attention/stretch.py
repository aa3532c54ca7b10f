"""Exercise 2: the mask of a block of queries over the stretch of keys that its windows cover."""

from collections.abc import Callable

import torch
from torch import Tensor

from lib.study.exercises import Exercise, Mistake
from lib.study.exercises.masks.truth import as_numbers


def _behind(block: int, window: int) -> Tensor:
    """(block, window − 1 + block) how far key j lies behind query i, which stands at window − 1 + i."""
    return window - 1 + torch.arange(block)[:, None] - torch.arange(window - 1 + block)


def _where(rule: Callable[[Tensor, int], Tensor]):
    return as_numbers(lambda block, window: rule(_behind(block, window), window))


STRETCH_MASK = Exercise(
    hint="Query i stands at place window − 1 + i of the stretch. It sees key j where the distance, place − j, is 0 up to "
    "window − 1.",
    why="One such mask serves every block, so the whole attention is one call over small squares: that is what saves the work.",
    shapes="block queries over window − 1 + block keys: (block, window − 1 + block).",
    next_step="Try block = 1: its window fills the stretch, and all is True. With window = 1, each sees itself alone.",
    right=_where(lambda behind, w: (behind >= 0) & (behind < w)),
    cases=lambda: [{"block": block, "window": window} for block, window in ((4, 3), (1, 5), (6, 4), (5, 1), (3, 8))],
    mistakes=(
        Mistake(
            _where(lambda behind, w: behind >= 0),
            "The future is hidden, and nothing else. The later queries of the block see more than `window` keys.",
        ),
        Mistake(
            _where(lambda behind, w: behind < w),
            "The far past is hidden, but the queries see those that come after them in the block.",
        ),
        Mistake(
            _where(lambda behind, w: (behind >= 0) & (behind <= w)),
            "One key too many. The query itself counts, so the farthest key is window − 1 behind it.",
        ),
        Mistake(
            _where(lambda behind, w: (behind > 0) & (behind < w)),
            "The query itself is left out. Distance 0 belongs to the window.",
        ),
        Mistake(
            as_numbers(lambda b, w: torch.ones(b, w - 1 + b).tril().bool()),
            "The triangle starts in the upper left, as if query 0 stood at key 0. It stands behind window − 1 keys.",
        ),
        Mistake(
            as_numbers(lambda b, w: (_behind(b, w) + 1 - w >= 0) & (_behind(b, w) + 1 - w < w)),
            "The band starts in the upper left, as if query 0 stood at key 0. It stands behind window − 1 keys.",
        ),
        Mistake(
            as_numbers(lambda b, w: (_behind(b, w)[:, w - 1 :] >= 0) & (_behind(b, w)[:, w - 1 :] < w)),
            "That is (block, block): the block sees itself alone. The window − 1 keys before it belong to the stretch.",
        ),
        Mistake(
            _where(lambda behind, w: ~((behind >= 0) & (behind < w))),
            "The mask is inverted. True means may attend.",
        ),
        Mistake(
            _where(lambda behind, w: behind.abs() < w),
            "The window is open on both sides, so it shows the future. Causal: place − j is at least 0.",
        ),
        Mistake(
            as_numbers(lambda b, w: torch.ones(b, w - 1 + b).bool()),
            "Everything is allowed. The corners of the stretch lie outside the windows.",
        ),
    ),
)
