"""Exercise 4: weights under a boolean mask and a float bias, where a row may have nothing to attend to."""

import math

import torch
from torch import Tensor

from lib.attention import scaled_dot_product_attention
from lib.study.exercises import Case, Exercise, Mistake, random_tensor

SIZES = ((2, 3, 4, 5), (3, 2, 5, 4))  # B, H, L, S of each case


def _cases() -> list[Case]:
    cases = []
    for (B, H, L, S), seed, share in zip(SIZES, (40, 50), (0.7, 0.5), strict=True):
        mask = random_tensor(B, 1, L, S, seed=seed) < torch.special.ndtri(torch.tensor(share))
        mask[:, :, 0, 0] = True  # a row with one key
        mask[0, :, 0, 1:] = False
        mask[:, :, 2] = seed == 40  # in the second case, a row with none
        bias = random_tensor(H, L, S, seed=seed + 1)
        cases.append({"scores": random_tensor(B, H, L, S, seed=seed + 2), "mask": mask, "bias": bias})
    return cases


def _right(scores: Tensor, mask: Tensor, bias: Tensor) -> Tensor:
    # A query of unit vectors against keys that hold the scores: the products are the scores.
    L = scores.size(-2)
    query = torch.eye(L).expand(*scores.shape[:-1], L)
    joined = torch.where(mask, bias, -math.inf)
    return scaled_dot_product_attention(query, scores.mT, scores.mT, joined, scale=1.0, need_weights=True)[1]


def _softmax(scores: Tensor, mask: Tensor, value: float = -math.inf) -> Tensor:
    return scores.masked_fill(~mask, value).softmax(dim=-1)


MASKED_WEIGHTS = Exercise(
    hint="Add the bias, put −inf where the mask is False, take the softmax; and give rows without any True the weights 0.",
    why="The boolean mask says whether, the bias how much; and a row that may attend to nothing takes nothing, not NaN.",
    shapes="scores (B, H, L, S), mask (B, 1, L, S) and bias (H, L, S) broadcast as they are. mask.any(dim=-1, keepdim=True) is "
    "(B, 1, L, 1).",
    next_step="Check in this order: the bias is added, hidden keys have weight 0, rows sum to 1, those without a key to 0.",
    right=_right,
    cases=_cases,
    mistakes=(
        Mistake(
            lambda s, m, b: _softmax(s + b, m),
            "A row without any True is NaN: its softmax is 0/0. Give such rows harmless scores before, and weight 0 after.",
        ),
        Mistake(
            lambda s, m, b: _softmax(s + b, m, -1e9),
            "A row without any True shares its attention among hidden keys. Give such rows weight 0 after the softmax.",
        ),
        Mistake(lambda s, m, b: _right(s, m, 0 * b), "The bias is missing: add it to the scores."),
        Mistake(lambda s, m, b: _right(s, ~m, b), "The mask is inverted: fill where it is False, ~mask."),
        Mistake(
            lambda s, m, b: (s + b + m).softmax(-1),
            "The boolean mask was added, as 1 and 0: it hides nothing. Fill −inf where it is False.",
        ),
        Mistake(
            lambda s, m, b: (s + b).softmax(-1) * m,
            "The mask comes after the softmax, so hidden keys still take their share and rows sum to less than 1.",
        ),
        Mistake(lambda s, m, b: _right(s * b, m, 0 * b), "The bias was multiplied. It is added to the scores."),
        Mistake(
            lambda s, m, b: torch.nan_to_num(_softmax(s, m)) + b * m,
            "The bias came after the softmax. It belongs to the scores.",
        ),
        Mistake(
            lambda s, m, b: (s + b).softmax(-1),
            "The mask has no effect. masked_fill returns a new tensor: keep what it returns.",
        ),
    ),
)
