"""Exercise 1: query, key and value are three maps of one x."""

import math

import torch.nn.functional as F

from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def projections(d_model: int, d_k: int, d_v: int, seed: int) -> Case:
    """The three weights, used as x @ w, of a size that keeps unit variance."""
    widths = {"w_q": d_k, "w_k": d_k, "w_v": d_v}
    return {
        name: random_tensor(d_model, width, seed=seed + i) / math.sqrt(d_model)
        for i, (name, width) in enumerate(widths.items())
    }


def _cases() -> list[Case]:
    return [
        {"x": random_tensor(5, 6, seed=1)} | projections(6, 4, 3, seed=2),
        {"x": random_tensor(2, 5, 8, seed=5)} | projections(8, 4, 6, seed=6),
        # Where every size is 4, nothing is stopped by its shape: transposed and nested maps give numbers, wrong ones.
        {"x": random_tensor(4, 4, seed=9)} | projections(4, 4, 4, seed=10),
    ]


QKV = Exercise(
    hint="Query, key and value are three maps of the same x: return x @ w for each of the three weights, as (q, k, v).",
    why="One x plays three roles: what a token looks for, what it offers to be found by, and what it hands over.",
    shapes="Write the shapes down first: x (…, n, d_model) @ w (d_model, width) gives (…, n, width).",
    next_step="Compare one token by hand: row 0 of Q is x[0] @ w_q, and nothing else goes into it.",
    right=lambda x, q, k, v: (F.linear(x, q.mT), F.linear(x, k.mT), F.linear(x, v.mT)),
    cases=_cases,
    parts=("Q", "K", "V"),
    mistakes=(
        Mistake(
            lambda x, q, k, v: (x, x, x),
            "You return x three times. Each token has to be asked three different questions: multiply x by each weight.",
        ),
        Mistake(
            lambda x, q, k, v: (x @ q, x @ v, x @ k),
            "K and V are swapped: the order is query, key, value.",
        ),
        Mistake(
            lambda x, q, k, v: (x @ k, x @ q, x @ v),
            "Q and K are swapped: the order is query, key, value.",
        ),
        Mistake(
            lambda x, q, k, v: (x @ q, x @ q @ k, x @ v),
            "The key is made from the query. All three are maps of x itself, none is a map of another.",
        ),
        Mistake(
            lambda x, q, k, v: (x @ q, x @ q @ k, x @ q @ k @ v),
            "The maps are chained: K is made from Q and V from K. All three are maps of x itself.",
        ),
        Mistake(
            lambda x, q, k, v: (x @ q, x @ k, x @ k @ v),
            "The value is made from the key. All three are maps of x itself, none is a map of another.",
        ),
        Mistake(
            lambda x, q, k, v: (x @ q.mT, x @ k.mT, x @ v.mT),
            "The weights are transposed. Here a weight is (d_model, width) and is used as x @ w; "
            "only nn.Linear stores it the other way round.",
        ),
        Mistake(
            lambda x, q, k, v: (q @ x, k @ x, v @ x),
            "The weight stands on the left. Each row of x is a token, so the weight goes on the right: x @ w.",
        ),
        Mistake(
            lambda x, q, k, v: (x * q, x * k, x * v),
            "* multiplies entry by entry. A linear map is the matrix product, x @ w.",
        ),
        Mistake(
            lambda x, q, k, v: (x @ q, x @ q, x @ q),
            "One weight makes all three. Each role has a weight of its own: w_q, w_k and w_v.",
        ),
        Mistake(
            lambda x, q, k, v: (x @ q, x @ q, x @ v),
            "Query and key share w_q, so every token would look for what it is itself. The key has a weight of its own, w_k.",
        ),
        Mistake(
            lambda x, q, k, v: (x @ q, x @ k, x @ k),
            "Key and value share w_k. What finds a token need not be what it hands over: the value has its own weight, w_v.",
        ),
    ),
)
