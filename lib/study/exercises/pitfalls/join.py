"""Exercise 1: heads that were joined without the transpose."""

from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _cases() -> list[Case]:
    sizes = ((2, 3, 5, 4), (1, 2, 6, 3), (3, 4, 4, 4))
    return [{"heads": random_tensor(*shape, seed=80 + i)} for i, shape in enumerate(sizes)]


def _join(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)


JOIN = Exercise(
    hint="Write down the axes of heads, (B, H, L, d), and of what is wanted, (B, L, H·d). Which two must change places before "
    "any are merged?",
    why="A reshape only cuts the same row of numbers elsewhere: axes change places with transpose, and are merged afterwards.",
    shapes="heads is (B, H, L, d). After transpose(1, 2) it is (B, L, H, d); merge its last two axes. A view of a transposed "
    "tensor is refused: use reshape or flatten.",
    next_step="Try heads whose entry is the number of its token: in the right answer row t holds the number t alone.",
    right=_join,
    cases=_cases,
    mistakes=(
        Mistake(
            lambda heads: heads.reshape(heads.size(0), heads.size(2), -1),
            "The heads are still merged without a transpose, so a row holds one head of several tokens. Let the axes of heads "
            "and tokens change places first.",
        ),
        Mistake(
            lambda heads: heads.permute(0, 2, 3, 1).flatten(2),
            "Each row holds its own token, but the heads are interleaved: number 0 of every head, then number 1. The output "
            "map was made for whole heads side by side: (B, L, H, d) before you merge.",
        ),
        Mistake(
            lambda heads: heads.transpose(2, 3).reshape(heads.size(0), heads.size(2), -1),
            "You exchanged tokens and columns. It is heads and tokens that have to change places: axes 1 and 2.",
        ),
        Mistake(
            lambda heads: heads.transpose(1, 2).flatten(1, 2),
            "You merged tokens and heads. Heads and their columns belong together: the last two axes.",
        ),
        Mistake(
            lambda heads: heads.transpose(1, 2),
            "The axes stand right now, (B, L, H, d). Merge the last two.",
        ),
        Mistake(
            lambda heads: heads.sum(dim=1),
            "Heads are not added up: they are laid side by side, so that the output map can weigh each.",
        ),
        Mistake(
            lambda heads: heads.mean(dim=1),
            "Heads are not averaged: they are laid side by side, so that the output map can weigh each.",
        ),
        Mistake(
            lambda heads: heads.flip(1).transpose(1, 2).flatten(2),
            "The heads stand in reverse order, and the output map was made for the first one first.",
        ),
    ),
)
