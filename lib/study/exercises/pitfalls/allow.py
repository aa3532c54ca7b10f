"""Exercise 2: a mask with three bugs of the story at once."""

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


def _mask(*, causal=lambda training: True, past=lambda L, S: S - L, padding=lambda keep: keep[:, None, None, :]):
    """A version of the answer, by what it makes of each of the three questions."""

    def allow(L: int, S: int, keep: Tensor | None, training: bool) -> Tensor:
        allowed = torch.ones(L, S, dtype=torch.bool)
        if causal(training):
            allowed = allowed.tril(past(L, S))
        return allowed if keep is None or padding is None else allowed & padding(keep)

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
    "padding": "Padding is still read: `keep` is not used. Each row of it hides keys, for every query: keep[:, None, None, :].",
}


def _known() -> list[Mistake]:
    """What is left when only some of the three bugs are mended, the worst first."""
    found = []
    for mode, step, padding in ((1, 1, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1)):
        wrong = {}
        if mode:
            wrong["causal"] = _in_training
        if step:
            wrong["past"] = _from_the_start
        if padding:
            wrong["padding"] = None
        left = [name for name, there in (("mode", mode), ("step", step), ("padding", padding)) if there]
        count = {1: "One bug is left.", 2: "Two bugs are left.", 3: "All three bugs are still there."}[len(left)]
        found.append(Mistake(_mask(**wrong), f"{count} {' '.join(_ADVICE[name] for name in left)}"))
    return found


ALLOW = Exercise(
    hint="Three of the eight bugs are in it. Ask of each line: does it hang on the mode, on the cache, and who reads padding?",
    why="One triangle, aligned to the last key, in every mode, and padding hidden for every query: nothing else is needed.",
    shapes="The triangle is (L, S); keep is (B, S) and hides keys, so it goes in as (B, 1, 1, S). Where keep is None, the "
    "answer is (L, S).",
    next_step="Draw yours with masks.draw: for L = 2 and S = 6 the last row is allowed whole, in both modes.",
    right=_mask(),
    cases=_cases,
    mistakes=(
        *_known(),
        Mistake(
            _mask(causal=_eval_alone),
            "Now the future is hidden in eval alone, and training sees it. Hide it in both.",
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
