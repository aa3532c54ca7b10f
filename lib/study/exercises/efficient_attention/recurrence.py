"""Exercise 3: causal linear attention with a state that is carried from token to token."""

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _cases() -> list[Case]:
    sizes = ((5, 3, 2), (1, 2, 4), (7, 4, 4), (4, 5, 3))  # (n, features, d_v)
    return [
        {
            "q": random_tensor(n, f, seed=80 + n).abs() + 0.1,
            "k": random_tensor(n, f, seed=90 + n).abs() + 0.1,
            "v": random_tensor(n, d, seed=100 + n),
        }
        for n, f, d in sizes
    ]


def right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Linear attention with the whole triangle of weights: (L, d), (L, d), (L, d_v) -> (L, d_v)."""
    weights = (q @ k.T).tril()
    return weights @ v / weights.sum(dim=-1, keepdim=True)


def _strict(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q @ k.T).tril(-1)
    return weights @ v / weights.sum(dim=-1, keepdim=True)


def _all_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = q @ k.T
    return weights @ v / weights.sum(dim=-1, keepdim=True)


def _whole_sum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.T).tril() @ v / (q @ k.T).sum(dim=-1, keepdim=True)


def _by_count(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.T).tril() @ v / torch.arange(1, len(q) + 1)[:, None]


def _by_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.T).tril() @ v / k.cumsum(dim=0).sum(dim=-1, keepdim=True)


RECURRENCE = Exercise(
    hint="Carry a matrix S (f, d_v) and a vector z (f,), both 0 at first. At each token add the outer product of k[i] and v[i] "
    "to S and k[i] to z; then the output is q[i] @ S divided by q[i] @ z.",
    why="The state has f · (d_v + 1) numbers however long the text is. It is all that such a model knows of its past.",
    shapes="torch.outer(k[i], v[i]) is (f, d_v), as S is; q[i] @ S is (d_v,). torch.stack puts the n outputs into (n, d_v).",
    next_step="With one token the output is its value: weight over weight is 1. Compare with the parallel form: "
    "(q @ k.T).tril(), each row divided by its sum, times v.",
    right=right,
    cases=_cases,
    mistakes=(
        Mistake(
            _strict,
            "The output is read before the token is added, so it sees only the past, and the first row is 0/0. Add first, "
            "then read.",
        ),
        Mistake(lambda q, k, v: (q @ k.T).tril() @ v, "The division is missing: q[i] @ z, the sum of the weights so far."),
        Mistake(_all_keys, "Every row sees all keys. Causal: what row i reads holds the tokens 0 … i alone."),
        Mistake(
            _whole_sum,
            "The values are summed up to token i, and the weights over all: z looks at the future. It grows with S.",
        ),
        Mistake(
            _by_count,
            "You divide by the number of tokens so far. The weights do not sum to that, but to q[i] @ z.",
        ),
        Mistake(
            _by_keys,
            "You divide by the sum of the keys' features. Each query has its own sum of weights: q[i] @ z.",
        ),
        Mistake(
            lambda q, k, v: v.clone(),
            "Each row is its own value: the state holds the last token alone. Add to it, do not replace it.",
        ),
        Mistake(
            lambda q, k, v: (q @ k.T).masked_fill(~torch.ones(len(q), len(q)).tril().bool(), -torch.inf).softmax(-1) @ v,
            "That is softmax attention. Here the weights are q[i] · k[j] themselves, divided by their sum.",
        ),
        Mistake(
            lambda q, k, v: (q @ k.T).tril() @ v / (q * k).sum(dim=-1, keepdim=True),
            "S grows, and z holds the last key alone. Both sum over all tokens so far.",
        ),
    ),
)
