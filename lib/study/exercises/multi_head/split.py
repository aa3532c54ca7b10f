"""Exercise 1: the width of each token, cut into heads."""

from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _cases() -> list[Case]:
    sizes = ((2, 5, 3, 4), (3, 4, 2, 6), (1, 6, 4, 2), (2, 4, 1, 3), (4, 6, 6, 5))  # (B, n, h, d)
    return [{"x": random_tensor(B, n, h * d, seed=200 + i), "num_heads": h} for i, (B, n, h, d) in enumerate(sizes)]


def right(x: Tensor, num_heads: int) -> Tensor:
    """(B, n, h·d) -> (B, n, h, d) -> (B, h, n, d)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def scrambled(x: Tensor, num_heads: int) -> Tensor:
    """The shape of `right`, and other numbers."""
    B, n, width = x.shape
    return x.reshape(B, num_heads, n, width // num_heads)


def _interleaved(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


def _through_the_width(x: Tensor, num_heads: int) -> Tensor:
    B, n, width = x.shape
    return x.transpose(1, 2).reshape(B, num_heads, n, width // num_heads)


SPLIT_HEADS = Exercise(
    hint="Two steps: cut the last axis in two, (B, n, h·d) -> (B, n, h, d), then swap the axes of tokens and heads.",
    why="A head owns d neighboring columns of every token. The last axis is the only one that may be cut.",
    shapes="Write the shapes down: x is (B, n, h·d). unflatten(-1, (num_heads, -1)) gives (B, n, h, d), transpose(1, 2) gives "
    "(B, h, n, d).",
    next_step="Try x = torch.arange(12.).reshape(1, 3, 4) with 2 heads, and look at head 0: it should hold the first two "
    "numbers of each token, 0 1, 4 5 and 8 9.",
    right=right,
    cases=_cases,
    mistakes=(
        Mistake(
            scrambled,
            "That is a reshape without a transpose. It fills head 0 with the first tokens, whole, and the last head with the "
            "last ones. Cut the last axis alone, (B, n, h, d), then swap tokens and heads.",
        ),
        Mistake(
            lambda x, num_heads: x.unflatten(-1, (num_heads, -1)),
            "The last axis is cut well, but the heads stand behind the tokens, (B, n, h, d). Attention works on the last two "
            "axes, so swap: transpose(1, 2).",
        ),
        Mistake(
            _interleaved,
            "Each head takes every h-th column. That trains just as well, but a head should own neighboring columns, as in "
            "torch: unflatten(-1, (num_heads, -1)), with the heads in front of the width.",
        ),
        Mistake(
            lambda x, num_heads: x.unflatten(-1, (-1, num_heads)).transpose(1, 2),
            "num_heads is the number of heads, and you made it the width of one: unflatten(-1, (num_heads, -1)).",
        ),
        Mistake(
            _through_the_width,
            "You swap tokens and width before the cut, and then reshape in another order. Cut first, then swap tokens and "
            "heads.",
        ),
        Mistake(
            lambda x, num_heads: right(x, num_heads).transpose(0, 1),
            "The heads stand in front of the batch, (h, B, n, d). The batch stays first: (B, h, n, d).",
        ),
        Mistake(
            lambda x, num_heads: right(x, num_heads).transpose(-2, -1),
            "Each head comes out as (d, n). A row is a token: (n, d).",
        ),
        Mistake(
            lambda x, num_heads: right(x, num_heads).flatten(0, 1),
            "Batch and heads are one axis, (B·h, n, d). Some code does that, but a mask then has to be repeated in the same "
            "order. Keep them apart: (B, h, n, d).",
        ),
    ),
)
