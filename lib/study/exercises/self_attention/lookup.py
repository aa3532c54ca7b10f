"""Exercise 4: the soft look-up, a blend of values by match of query and keys, with a temperature."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from lib.attention import scaled_dot_product_attention
from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _cases() -> list[Case]:
    sizes = [(4, 5, 3, 1.0), (6, 4, 6, 0.5), (9, 7, 2, 3.0), (4, 4, 4, 2.0)]  # d, n, d_v, temperature
    cases = [
        {
            "query": random_tensor(d, seed=40 + i),
            "keys": random_tensor(n, d, seed=50 + i),
            "values": random_tensor(n, d_v, seed=60 + i),
            "temperature": temperature,
        }
        for i, (d, n, d_v, temperature) in enumerate(sizes)
    ]
    # Matches 50, 30, −50, 10, −20 at temperature 0.001: exp(50 000) is no float32, while the answer is simply values[0].
    query, keys = torch.tensor([5.0, 0.0, 0.0]), random_tensor(5, 3, seed=70)
    keys[:, 0] = torch.tensor([10.0, 6.0, -10.0, 2.0, -4.0])
    return [*cases, {"query": query, "keys": keys, "values": random_tensor(5, 4, seed=71), "temperature": 1e-3}]


def _right(query: Tensor, keys: Tensor, values: Tensor, temperature: float) -> Tensor:
    return scaled_dot_product_attention(query[None], keys, values, scale=1 / temperature)[0]


def _softmax(query: Tensor, keys: Tensor, temperature: float) -> Tensor:
    return (keys @ query / temperature).softmax(-1)


SOFT_LOOKUP = Exercise(
    hint="Match the query with each key by a dot product, divide by the temperature, take the softmax: these are the shares "
    "of the values in the blend.",
    why="A dictionary gives one value or fails; a blend always answers, has a gradient, and hardens as the temperature falls.",
    shapes="keys (n, d) @ query (d,) gives one match a key, (n,); weights (n,) @ values (n, d_v) gives the blend, (d_v,).",
    next_step="Print the weights: n of them, all positive, summing to 1, the largest where keys @ query is largest.",
    right=_right,
    cases=_cases,
    mistakes=(
        Mistake(
            lambda q, k, v, t: _softmax(q, k, 1 / t) @ v,
            "You multiply by the temperature. Divide: a low temperature is to sharpen the differences.",
        ),
        Mistake(
            lambda q, k, v, t: _softmax(q, k, 1) @ v,
            "The temperature does not enter. Divide the matches by it before the softmax.",
        ),
        Mistake(
            lambda q, k, v, t: _softmax(q, k, 1) / t @ v,
            "The temperature comes after the softmax, so the weights no longer sum to 1. Divide the matches before it.",
        ),
        Mistake(
            lambda q, k, v, t: v[(k @ q).argmax()],
            "That is the hard look-up, the limit of temperature 0. At a temperature above 0 every value has a share.",
        ),
        Mistake(
            lambda q, k, v, t: v.mean(0), "That is the plain mean of the values: neither query nor keys enter the weights."
        ),
        Mistake(
            lambda q, k, v, t: (k @ q / t) @ v.softmax(0),
            "The softmax runs over the values. It belongs to the matches; the values are blended as they are.",
        ),
        Mistake(
            lambda q, k, v, t: (k @ q / t) @ v.softmax(-1),
            "The softmax runs over the values. It belongs to the matches; the values are blended as they are.",
        ),
        Mistake(
            lambda q, k, v, t: _softmax(q, F.normalize(k, dim=-1), t) @ v,
            "Your keys are brought to length 1 first. The match is the plain dot product: long keys are to count for more.",
        ),
        Mistake(
            lambda q, k, v, t: _softmax(F.normalize(q, dim=-1), F.normalize(k, dim=-1), t) @ v,
            "That is cosine similarity. The match is the plain dot product, in which the lengths of query and key count.",
        ),
        Mistake(
            lambda q, k, v, t: _softmax(q, k, t * math.sqrt(q.numel())) @ v,
            "You divide by √d as well. Here the temperature is the whole scale (attention is the case temperature = √d_k).",
        ),
        Mistake(
            lambda q, k, v, t: _softmax(q, k, math.sqrt(q.numel())) @ v,
            "You divide by √d and not by the temperature. Attention is the case temperature = √d_k; here it is given.",
        ),
        Mistake(
            lambda q, k, v, t: (k @ q / t).exp() / (k @ q / t).exp().sum() @ v,
            "Right until exp overflows: exp(100) has no float32. Softmax subtracts the largest match first, which changes no "
            "weight; use torch.softmax, or do the same.",
        ),
        Mistake(
            lambda q, k, v, t: _softmax(q, k, t),
            "Those are the weights. The blend is their product with the values, weights @ values.",
        ),
        Mistake(
            lambda q, k, v, t: (k @ q / t) @ v,
            "The softmax is missing: the matches themselves are no shares, they have both signs and any sum.",
        ),
        Mistake(
            lambda q, k, v, t: (q @ k / t).softmax(-1) @ v,
            "query @ keys takes the columns of keys, which only runs where n = d. A key is a row: keys @ query.",
        ),
        Mistake(
            lambda q, k, v, t: _softmax(q, k, t)[:, None] * v,
            "Each value has its share now; the blend is their sum over the keys, weights @ values.",
        ),
        Mistake(
            lambda q, k, v, t: (_softmax(q, k, t)[:, None] * v).mean(0),
            "You take the mean of the weighted values. The weights sum to 1 already: take the sum.",
        ),
        Mistake(
            lambda q, k, v, t: _softmax(q, k, t) @ k,
            "You blend the keys. Keys are for finding, values for handing over: weights @ values.",
        ),
    ),
)
