"""An exercise: the gradients with which the optimizer steps, from those of small batches with unequal numbers of tokens."""

from collections.abc import Callable

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _cases() -> list[Case]:
    return [
        {"gradients": random_tensor(N, P, seed=N + P), "tokens": torch.tensor(tokens), "size": size}
        for N, P, size, tokens in (
            (7, 4, 3, [9, 2, 5, 1, 8, 3, 6]),  # two whole groups and a rest of one
            (6, 3, 3, [4, 11, 2, 7, 1, 5]),  # no rest
            (5, 2, 4, [3, 3, 10, 1, 6]),
            (2, 3, 4, [2, 12]),  # a rest alone
        )
    ]


def _groups(N: int, size: int) -> list[slice]:
    """`size` micro-batches for each step, and a last step for the rest."""
    return [slice(start, start + size) for start in range(0, N, size)]


def _early(N: int, size: int) -> list[slice]:
    """What `if i % size == 0: step()` does, i from 0: after the first, and the rest is left over."""
    stops = range(1, N + 1, size)
    return [slice(max(0, stop - size), stop) for stop in stops]


def _by_tokens(gradients: Tensor, tokens: Tensor, size: int) -> Tensor:
    return (tokens[:, None] * gradients).sum(0) / tokens.sum()


def _version(form: Callable[[Tensor, Tensor, int], Tensor] = _by_tokens, groups: Callable[[int, int], list[slice]] = _groups):
    """An answer: how a step's gradient is formed, and of which micro-batches."""

    def accumulated(gradients: Tensor, tokens: Tensor, size: int) -> Tensor:
        steps = [form(gradients[part], tokens[part], size) for part in groups(len(gradients), size)]
        return torch.stack(steps) if steps else gradients[:0]

    return accumulated


def _never_zeroed(gradients: Tensor, tokens: Tensor, size: int) -> Tensor:
    return _version()(gradients, tokens, size).cumsum(0)


def _of_all_tokens(gradients: Tensor, tokens: Tensor, size: int) -> Tensor:
    sums = _version(lambda g, n, _: (n[:, None] * g).sum(0))(gradients, tokens, size)
    return sums / tokens.sum()


ACCUMULATED = Exercise(
    hint="For each group of `size` micro-batches: weigh each gradient by its number of tokens, add up, divide by the tokens of "
    "the group. The last group may be smaller.",
    why="Weighted by tokens, a step from micro-batches is the step from the large batch, whatever their lengths.",
    shapes="gradients is (N, P), tokens is (N,), and the answer (S, P) with S = ceil(N / size): a row for each step.",
    next_step="Take two micro-batches of 1 and 3 tokens: a token of the second must count as much as the one of the first.",
    right=_version(),
    cases=_cases,
    mistakes=(
        Mistake(
            _version(lambda g, n, size: g.mean(0)),
            "That is the mean of the means: a token of a short micro-batch counts more than one of a long one. Weigh each "
            "gradient by its tokens.",
        ),
        Mistake(
            _version(lambda g, n, size: g.sum(0) / size),
            "That divides by `size` and counts no tokens. Tokens differ between micro-batches, and the last group may have "
            "fewer of them.",
        ),
        Mistake(
            _version(lambda g, n, size: (n[:, None] * g).sum(0) / len(g)),
            "The sum is right, the divisor is not: divide by the group's tokens, not by its number of micro-batches.",
        ),
        Mistake(
            _version(lambda g, n, size: (n[:, None] * g).sum(0) / size),
            "The sum is right, the divisor is not: divide by the group's tokens, not by `size`.",
        ),
        Mistake(
            _version(lambda g, n, size: g.sum(0)),
            "The gradients are only added up: each is a mean already, so the step grows with the number of micro-batches.",
        ),
        Mistake(
            _version(lambda g, n, size: (n[:, None] * g).sum(0)),
            "The weighted gradients are only added up: divide by the tokens of the group.",
        ),
        Mistake(
            _version(groups=_early),
            "Your steps come after 1, size + 1, 2·size + 1 micro-batches: counting from 0, `i % size == 0` is true at once. "
            "Step when (i + 1) % size == 0, and once more for the rest.",
        ),
        Mistake(
            _version(groups=lambda N, size: _groups(N, size)[: N // size]),
            "The micro-batches behind the last whole group are dropped. They need a step of their own: else their gradient is "
            "lost, or leaks into the next epoch.",
        ),
        Mistake(
            _never_zeroed,
            "A step's gradient still holds those of the steps before it: zero_grad() after each step.",
        ),
        Mistake(
            _of_all_tokens,
            "You divide by the tokens of the whole epoch: each step is then too small. Divide by those of its own group.",
        ),
    ),
)
