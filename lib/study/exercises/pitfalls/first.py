"""Exercise 4: how much more than its share the first token gets."""

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _cases() -> list[Case]:
    made = []
    for i, shape in enumerate(((2, 3, 6, 6), (1, 2, 5, 5), (3, 1, 9, 9))):
        scores = random_tensor(*shape, seed=110 + i)
        scores[..., 0] += i
        hidden = torch.ones(shape[-2:], dtype=torch.bool).triu(1)
        made.append({"weights": scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)})
    return made


def _chance(weights: Tensor, start: int = 1) -> Tensor:
    return (1 / torch.arange(start + 1, weights.size(-1) + 1)).mean()


def _first(weights: Tensor) -> Tensor:
    return weights[:, :, 1:, 0].mean(dim=(0, 2)) / _chance(weights)


FIRST = Exercise(
    hint="Query i sees i + 1 keys, so equal weights give the first one 1 / (i + 1). Leave out query 0: it sees nothing else.",
    why="Without this share, every causal map seems to favor its first tokens: early queries have little else to look at.",
    shapes="weights is (B, H, L, L): batch, head, query, key. The answer is one number for each head, (H,).",
    next_step="Try equal weights: from lib import masks, and (masks.causal(6) / torch.arange(1, 7)[:, None])[None, None]. The "
    "answer is 1 for them.",
    right=_first,
    cases=_cases,
    mistakes=(
        Mistake(
            lambda weights: weights[:, :, 1:, 0].mean(dim=(0, 2)),
            "That is the weight itself. Divide it by what equal weights would give: the mean of 1 / (i + 1) over the same "
            "queries.",
        ),
        Mistake(
            lambda weights: weights[..., 0].mean(dim=(0, 2)) / _chance(weights, 0),
            "Query 0 is among them. It sees one key alone, so it gives the first token 1 whatever was learned: leave it out.",
        ),
        Mistake(
            lambda weights: weights[:, :, 1:, 0].mean(dim=(0, 2)) * weights.size(-1),
            "You divide by 1 / L, as if each query saw all keys. In a causal map query i sees i + 1 of them.",
        ),
        Mistake(
            lambda weights: weights[..., 0].mean(dim=(0, 2)) * weights.size(-1),
            "You divide by 1 / L, as if each query saw all keys; query i sees i + 1 of them. And leave out query 0.",
        ),
        Mistake(
            lambda weights: weights[:, :, 0, 1:].mean(dim=(0, 2)) / _chance(weights),
            "Rows and columns are exchanged: the last axis is the keys. You took the weights of query 0.",
        ),
        Mistake(
            lambda weights: (weights[:, :, 1:, 0] * torch.arange(2, weights.size(-1) + 1)).mean(dim=(0, 2)),
            "That is the mean of the ratios, in which late queries count most. Take the ratio of the means.",
        ),
        Mistake(
            lambda weights: (weights[:, :, 1:, 0].mean(dim=(0, 2)) / _chance(weights)).mean(),
            "One number for each head, please: a mean over heads hides the one that does it.",
        ),
        Mistake(
            lambda weights: weights[:, :, 1:, 0].sum(dim=2).mean(dim=0) / _chance(weights),
            "You add the weights of all queries up, and divide by a mean. Take means of both.",
        ),
    ),
)
