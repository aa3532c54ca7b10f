"""Exercise 4: what ALiBi adds to the scores."""

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake


def _cases() -> list[Case]:
    # Heads fewer than, more than and as many as positions: where both are 4, a slope on the wrong axis fits too.
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.7, 0.3])
    return [{"slopes": slopes[:H], "n": n} for H, n in ((2, 5), (6, 3), (4, 4))]


def _difference(n: int) -> Tensor:
    """(n, n): query's position minus key's."""
    return (torch.arange(n)[:, None] - torch.arange(n)).float()


def _with(distances):
    """−slope · distance, for distances (n, n)."""
    return lambda slopes, n: -slopes[:, None, None] * distances(_difference(n))


ALIBI = Exercise(
    hint="The distance of query i and key j is |i − j|, an (n, n) table. Each head subtracts slope · distance from its scores.",
    why="A score falls in a straight line with distance, at a slope of the head's own. There is no longest distance.",
    shapes="slopes[:, None, None] is (H, 1, 1) and the distances (n, n), so their product is (H, n, n).",
    next_step="The diagonal is 0, the next ones −slope, on both sides. No number is above 0.",
    right=_with(torch.abs),
    cases=_cases,
    mistakes=(
        Mistake(
            lambda slopes, n: slopes[:, None, None] * _difference(n).abs(),
            "The sign is missing: so far tokens would be favored. What is far away loses: −slope · distance.",
        ),
        Mistake(
            _with(lambda d: d),
            "Later keys get a bonus, since i − j is negative there. The distance has no sign: take its absolute value.",
        ),
        Mistake(
            _with(lambda d: d.clamp(min=0)),
            "Later keys cost nothing here. The distance counts on both sides; a causal mask is another matter.",
        ),
        Mistake(
            _with(lambda d: -d),
            "Earlier keys get a bonus: the difference is key minus query. The distance has no sign: take its absolute value.",
        ),
        Mistake(
            _with(lambda d: d.square()),
            "You square the distance. ALiBi falls in a straight line.",
        ),
        Mistake(
            _with(lambda d: d.abs() / len(d)),
            "You divide the distance by n. Then one step costs less in a longer text: what was learned is lost.",
        ),
        Mistake(
            _with(lambda d: torch.arange(len(d)).float().expand(len(d), -1)),
            "That falls with the key's own position, not with its distance from the query.",
        ),
        Mistake(
            lambda slopes, n: -_difference(n).abs().expand(len(slopes), n, n),
            "The slopes are not used: every head would see the same.",
        ),
        Mistake(
            lambda slopes, n: -slopes * _difference(n).abs().expand(len(slopes), n, n),
            "The slopes run along the keys. A head has one slope, the same for all keys: slopes[:, None, None].",
        ),
        Mistake(
            lambda slopes, n: (-slopes[:, None, None] * _difference(n).abs()).exp(),
            "You take exp. The bias is added to the scores, before the softmax.",
        ),
        Mistake(
            lambda slopes, n: (-slopes[:, None, None] * _difference(n).abs()).movedim(0, -1),
            "The axis of the heads stands last. It comes first: (H, n, n).",
        ),
    ),
)
