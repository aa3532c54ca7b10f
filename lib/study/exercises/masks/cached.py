"""Exercise 1: the causal mask of a step that has keys of the past in a cache."""

import torch

from lib import masks
from lib.study.exercises import Exercise, Mistake
from lib.study.exercises.masks.truth import as_numbers


def _distance(L: int, S: int):
    """(L, S) how far key j lies behind query i."""
    return torch.arange(S - L, S)[:, None] - torch.arange(S)


CAUSAL_MASK = Exercise(
    hint="Query i stands at position S − L + i among the keys: it may see key j where j is at most that.",
    why="The last query stands at the last key, so a step with a cache sees its whole past, and with L = S nothing changes.",
    shapes="The mask is (L, S): a row for each query, a column for each key. torch.arange(L)[:, None] is a column.",
    next_step="Draw yours with masks.draw(causal_mask(2, 6)): the last row is all allowed, the row above it all but the last.",
    right=as_numbers(masks.causal),
    cases=lambda: [{"L": L, "S": S} for L, S in ((5, 5), (2, 6), (1, 7), (3, 4))],
    mistakes=(
        Mistake(
            as_numbers(lambda L, S: torch.ones(L, S).tril().bool()),
            "Right for L = S. With a cache the query at hand would see key 0 alone: the queries are the last L of S positions, "
            "so the diagonal moves S − L to the right.",
        ),
        Mistake(
            as_numbers(lambda L, S: _distance(L, S) > 0),
            "A query does not see its own key. It may: j at most its own position, so ≥ and not >.",
        ),
        Mistake(
            as_numbers(lambda L, S: _distance(L, S) < 0),
            "The mask is inverted. True means may attend: the past and the query itself are True.",
        ),
        Mistake(
            as_numbers(lambda L, S: torch.ones(L, S).triu(1).bool()),
            "That is the triangle of what to hide, as torch's modules want it. Here True means may attend.",
        ),
        Mistake(
            as_numbers(lambda L, S: _distance(L, S) >= -1), "Each query sees one step ahead. Its own position is the last."
        ),
        Mistake(
            as_numbers(lambda L, S: _distance(L, S) <= 0), "That is the future and the query itself. Turn the comparison round."
        ),
        Mistake(
            as_numbers(lambda L, S: torch.ones(S, S).tril().bool()),
            "That is a row for each key. Only the last L of its rows are queries at hand.",
        ),
        Mistake(as_numbers(lambda L, S: torch.ones(L, S).bool()), "Everything is allowed. The future has to be hidden."),
    ),
)
