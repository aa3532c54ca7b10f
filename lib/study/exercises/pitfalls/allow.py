"""Exercise 2: a mask with three bugs of the story at once, and a fourth that comes of mending them."""

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake
from lib.study.exercises.masks.truth import as_numbers


def _cases() -> list[Case]:
    behind = torch.tensor([[True] * 5, [True, True, True, False, False]])
    in_front = torch.tensor([[False, False, True, True, True, True], [True] * 6, [False] * 5 + [True]])
    return [
        {"L": L, "S": S, "keep": keep, "training": training}
        for training in (True, False)
        for L, S, keep in ((5, 5, None), (2, 6, None), (5, 5, behind), (6, 6, in_front), (1, 6, in_front))
    ]


def _mask(
    *, causal=lambda training: True, past=lambda L, S: S - L, padding=lambda keep: keep[:, None, None, :], own: bool = True
):
    """A version of the answer, by what it makes of each of the four questions."""

    def allow(L: int, S: int, keep: Tensor | None, training: bool) -> Tensor:
        allowed = torch.ones(L, S, dtype=torch.bool)
        if causal(training):
            allowed = allowed.tril(past(L, S))
        if keep is None or padding is None:
            return allowed
        allowed = allowed & padding(keep)
        return allowed | torch.ones(L, S, dtype=torch.bool).tril(S - L).triu(S - L) if own else allowed

    return as_numbers(allow)


def _eval_alone(training: bool) -> bool:
    return not training


def _in_training(training: bool) -> bool:
    return training


def _from_the_start(L: int, S: int) -> int:
    return 0


_ADVICE = {
    "mode": "The future is still hidden in training only. The mode has nothing to do with who may look at whom.",
    "step": "With more keys than queries, each query is taken for an early one. The queries are the last L of S places: move "
    "the diagonal by S − L.",
    "padding": "Padding is still read: `keep` is not used. Each row of it hides keys, for every query.",
    "own": "Behind padding in front, some queries have no key left, and a softmax of nothing is NaN: let every query see its "
    "own place, the diagonal that the triangle ends at.",
}


def _known() -> list[Mistake]:
    """What is left when only some of the bugs are mended, the worst first. Where padding is read, no row is empty."""
    found = []
    for own, mode, step, padding in (
        *((0, 1, 1, 1), (0, 1, 0, 1), (0, 0, 1, 1), (0, 0, 0, 1)),
        *((1, 1, 1, 0), (1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 0)),
        *((0, 1, 1, 0), (0, 1, 0, 0), (0, 0, 1, 0)),
    ):
        wrong = {"own": not own}
        if mode:
            wrong["causal"] = _in_training
        if step:
            wrong["past"] = _from_the_start
        if padding:
            wrong["padding"] = None
        bugs = (("mode", mode), ("step", step), ("padding", padding), ("own", own))
        left = [name for name, there in bugs if there]
        count = ("One bug is left.", "Two bugs are left.", "Three bugs are left.")[len(left) - 1]
        found.append(Mistake(_mask(**wrong), f"{count} {' '.join(_ADVICE[name] for name in left)}"))
    return found


ALLOW = Exercise(
    hint="Three of the eight bugs are in it. Ask of each line: does it hang on the mode, on the cache, and who reads padding? "
    "Then look for a row with nothing to see.",
    why="One triangle, aligned to the last key, in every mode; padding hidden on either side; no row without a key, so no NaN.",
    shapes="The triangle is (L, S); keep is (B, S) and hides keys, so it goes in as (B, 1, 1, S). Where keep is None, the "
    "answer is (L, S).",
    next_step="Draw yours, with from lib import masks and print(masks.draw(…)): for L = 2 and S = 6 the last row is allowed "
    "whole, in both modes; with padding on either side, no row is empty.",
    right=_mask(),
    cases=_cases,
    mistakes=(
        *_known(),
        Mistake(
            _mask(causal=_eval_alone),
            "Now the future is hidden in eval alone, and training sees it. Hide it in both.",
        ),
        *(
            Mistake(
                _mask(padding=lambda keep: keep[:, None, :, None], own=own),
                "`keep` hides queries there, on the third axis. Padding must not be looked at, so it is keys that are hidden: "
                "the last axis.",
            )
            for own in (False, True)
        ),
        Mistake(
            _mask(padding=lambda keep: ~keep[:, None, None, :]),
            "The padding is read and the real tokens are hidden: keep is True for what may be seen already.",
        ),
        Mistake(
            _mask(past=lambda L, S: S - L + 1),
            "Each query sees one step ahead: the diagonal moves by S − L and no further.",
        ),
        Mistake(
            _mask(past=lambda L, S: S - L - 1),
            "A query does not see itself. It may: the diagonal moves by S − L.",
        ),
        Mistake(
            _mask(causal=lambda training: False),
            "Now the future is seen in both modes. The triangle is needed in both.",
        ),
    ),
)
