"""Exercise: one vector for a whole text, the mean over its true tokens."""

import torch
from torch import Tensor

from lib.study.classifiers import mean_pool
from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _real(x: Tensor, lengths: Tensor, reach: int = 0) -> Tensor:
    """(B, L, 1): 1 at true tokens, and at `reach` more."""
    return (torch.arange(x.size(1)) < lengths[:, None] + reach)[..., None].to(x.dtype)


def _cases() -> list[Case]:
    sizes = ((3, 6, 4, (6, 4, 1)), (2, 5, 3, (2, 3)), (4, 4, 5, (1, 4, 2, 3)))
    return [
        {"x": random_tensor(B, L, D, seed=i) + 0.5, "lengths": torch.tensor(lengths)}
        for i, (B, L, D, lengths) in enumerate(sizes)
    ]


def _divided(x: Tensor, lengths: Tensor) -> Tensor:
    return (x * _real(x, lengths)).sum(dim=1)


TEXT_MEAN = Exercise(
    hint="Two steps: add up the vectors of the true tokens of each text, then divide by how many there are. Token i of text b "
    "is true if i < lengths[b].",
    why="Padding has vectors too. In the mean, they would make a text's class depend on its neighbors in the batch.",
    shapes="x is (B, L, D) and lengths (B,). real[..., None] makes (B, L) fit x; lengths[:, None] makes (B,) fit (B, D).",
    next_step="Take one text of 2 true tokens in 5: the answer is (x[0, 0] + x[0, 1]) / 2.",
    right=mean_pool,
    cases=_cases,
    mistakes=(
        Mistake(
            lambda x, lengths: x.mean(dim=1),
            "The padding is in the mean. The same text in a longer batch would get another vector.",
        ),
        Mistake(
            lambda x, lengths: _divided(x, lengths) / x.size(1),
            "The sum is right, but it is divided by L, the length of the batch. Divide by the length of each text.",
        ),
        Mistake(_divided, "That is the sum. Divide by the length of each text, else a long text is a loud one."),
        Mistake(
            lambda x, lengths: (x * _real(x, lengths, 1)).sum(dim=1) / _real(x, lengths, 1).sum(dim=1),
            "One token of padding is in the mean: places count from 0, so a true one is less than the length.",
        ),
        Mistake(
            lambda x, lengths: (x * _real(x, lengths, 1)).sum(dim=1) / lengths[:, None],
            "One token of padding is in the sum: places count from 0, so a true one is less than the length.",
        ),
        Mistake(
            lambda x, lengths: (x * _real(x, lengths, -1)).sum(dim=1) / lengths[:, None],
            "The last true token of each text is missing in the sum.",
        ),
        Mistake(
            lambda x, lengths: x[torch.arange(len(x)), lengths - 1],
            "That is the last true token alone. A recurrent net is read there; here all tokens count alike.",
        ),
        Mistake(lambda x, lengths: x[:, 0], "That is the first token alone. Here all true tokens count alike."),
        Mistake(
            lambda x, lengths: x.masked_fill(_real(x, lengths) == 0, -torch.inf).amax(dim=1),
            "That is the largest of each number over the tokens. The exercise asks for the mean.",
        ),
        Mistake(
            lambda x, lengths: (x * _real(x, lengths)).sum(dim=(0, 1)) / lengths.sum(),
            "That is one mean over all texts together. Each text keeps its own: sum over axis 1 alone.",
        ),
        Mistake(
            lambda x, lengths: x.sum(dim=1) / lengths[:, None],
            "The division is right, but the sum takes in the padding. Set it to 0 first.",
        ),
    ),
)
