"""Exercise 2: the heads side by side again, as one width."""

from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _cases() -> list[Case]:
    sizes = ((2, 3, 5, 4), (3, 2, 4, 6), (1, 4, 6, 2), (2, 1, 4, 3), (4, 6, 6, 5))  # (B, h, n, d)
    return [{"heads": random_tensor(*size, seed=220 + i)} for i, size in enumerate(sizes)]


def right(heads: Tensor) -> Tensor:
    """(B, h, n, d) -> (B, n, h, d) -> (B, n, h·d)."""
    return heads.transpose(1, 2).flatten(2)


def scrambled(heads: Tensor) -> Tensor:
    """The shape of `right`, and other numbers."""
    B, h, n, d = heads.shape
    return heads.reshape(B, n, h * d)


MERGE_HEADS = Exercise(
    hint="The way back: swap heads and tokens, (B, h, n, d) -> (B, n, h, d), then join the last two axes.",
    why="Each token gets what all heads found for it, side by side. The output projection can then mix them.",
    shapes="Write the shapes down: (B, h, n, d), then (B, n, h, d), then (B, n, h·d). If view complains after a transpose, the "
    "numbers no longer lie in this order in memory: use reshape or flatten, which copy where they must.",
    next_step="Try heads = torch.arange(12.).reshape(1, 2, 3, 2): token 0 should get the first row of each head, 0 1 6 7.",
    right=right,
    cases=_cases,
    mistakes=(
        Mistake(
            scrambled,
            "That is a reshape without a transpose: a token gets pieces of other tokens. Swap heads and tokens first, "
            "transpose(1, 2), then join the last two axes.",
        ),
        Mistake(
            lambda heads: heads.transpose(1, 2),
            "The swap is right. Now join the last two axes: (B, n, h, d) -> (B, n, h·d).",
        ),
        Mistake(
            lambda heads: heads.permute(0, 2, 3, 1).flatten(2),
            "The heads are interleaved: first number of each head, second number of each head. Each head's d numbers stay "
            "together: (B, n, h, d), then join.",
        ),
        Mistake(
            lambda heads: heads.flatten(1, 2), "Heads and tokens are joined, (B, h·n, d). Heads are joined with the width."
        ),
        Mistake(lambda heads: heads.sum(1), "The heads are added up, (B, n, d). They stand side by side: (B, n, h·d)."),
        Mistake(lambda heads: heads.mean(1), "The heads are averaged, (B, n, d). They stand side by side: (B, n, h·d)."),
        Mistake(
            lambda heads: heads.transpose(1, 2).flip(2).flatten(2),
            "The heads stand in reverse order. Head 0 comes first, because the first d rows of W_o are meant for it.",
        ),
    ),
)
