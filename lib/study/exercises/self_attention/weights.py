"""Exercise 3: the attention weights, the softmax of the scaled scores."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from lib.attention import scaled_dot_product_attention
from lib.study.exercises import Case, Exercise, Mistake, random_tensor


def _cases() -> list[Case]:
    sizes = [(5, 4), (3, 4, 9), (6, 6), (2, 7, 64)]  # with and without batch; n above, below and equal to d_k
    return [{"query": random_tensor(*s, seed=20 + i), "key": random_tensor(*s, seed=30 + i)} for i, s in enumerate(sizes)]


def _right(query: Tensor, key: Tensor) -> Tensor:
    return scaled_dot_product_attention(query, key, key, need_weights=True)[1]


def row_sums(weights: Tensor) -> str:
    """What the rows of weights sum to, in words."""
    sums = weights.double().sum(-1)
    low, high = float(sums.min()), float(sums.max())
    if max(abs(low - 1), abs(high - 1)) < 1e-4:
        return "rows sum to 1"
    span = f"{low:.2g}" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.2g} … {high:.2g}"
    return f"rows sum to {span}, not to 1"


def _facts(case: Case, weights: Tensor) -> str:
    """The row sums, and the divisor that was put on the scores, read off the weights where a softmax made them."""
    facts = row_sums(weights)
    if facts != "rows sum to 1" or bool((weights <= 0).any()):
        return facts
    # In a softmax, differences within a row of log-weights are differences of scores over the divisor: a line's slope.
    scores, logs = (x - x.mean(-1, keepdim=True) for x in (case["query"] @ case["key"].mT, weights.log()))
    slope = float((scores * logs).sum() / scores.square().sum())
    if slope <= 0 or not torch.allclose(logs, scores * slope, atol=1e-2):
        return facts
    return f"{facts}, the scores were divided by {1 / slope:.3g} (√d_k is {math.sqrt(case['query'].size(-1)):.3g})"


def _with_factor(factor):
    """The weights under another factor of the scores: `factor(n, d_k)`."""
    return lambda q, k: (q @ k.mT * factor(*q.shape[-2:])).softmax(-1)


def _scaled(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT / math.sqrt(query.size(-1))


ATTENTION_WEIGHTS = Exercise(
    hint="Three steps: the scores, query times key transposed, (n, n); the scale, 1/√d_k; and softmax along each row.",
    why="Dividing by √d_k keeps the scores of one size whatever d_k, and softmax makes of each row a set of shares.",
    shapes="query and key are (…, n, d_k): transpose the last two axes of key, key.transpose(-2, -1), and the scores are "
    "(…, n, n), with or without a batch in front.",
    next_step="Check in this order: the scores (row i belongs to query i), their divisor √d_k, softmax along the last axis.",
    right=_right,
    cases=_cases,
    facts=_facts,
    mistakes=(
        Mistake(
            _with_factor(lambda n, d_k: 1),
            "There is no scale: divide the scores by √d_k before the softmax.",
        ),
        Mistake(
            _with_factor(lambda n, d_k: 1 / d_k), "Your scale is d_k, not √d_k: the wider the key, the smaller the scores."
        ),
        Mistake(
            _with_factor(lambda n, d_k: math.sqrt(d_k)), "You multiply the scores by √d_k. Divide by it: they are too large."
        ),
        Mistake(
            _with_factor(lambda n, d_k: 1 / math.sqrt(n)),
            "Your scale is √n, from the number of tokens. A score is a sum over the d_k parts of a query: the scale is √d_k.",
        ),
        Mistake(
            lambda q, k: _scaled(q, k).softmax(-2),
            "The columns sum to 1: the softmax runs over the queries. Each query shares itself out over the keys: dim=-1.",
        ),
        Mistake(
            lambda q, k: _scaled(q, k).softmax(0),
            "The softmax runs over dim=0: without a batch these are the queries, with one it is the batch. "
            "The keys are the last axis: dim=-1.",
        ),
        Mistake(
            lambda q, k: _scaled(q, k).softmax(1),
            "dim=1 is the axis of the keys only as long as there is no batch in front. Count from the end: dim=-1.",
        ),
        Mistake(
            lambda q, k: _scaled(q, k).flatten(-2).softmax(-1).view(_scaled(q, k).shape),
            "All weights together sum to 1. Each query has a softmax of its own, along the last axis.",
        ),
        Mistake(
            lambda q, k: _scaled(k, q).softmax(-1),
            "The product is transposed: row i belongs to key i. Query stands on the left, query @ key.transpose(-2, -1).",
        ),
        Mistake(
            lambda q, k: (k.mT @ q / math.sqrt(q.size(-1))).softmax(-1),
            "That is KᵀQ, widths against widths. Q Kᵀ has tokens against tokens: transpose key, and put it on the right.",
        ),
        Mistake(
            lambda q, k: (q.mT @ k / math.sqrt(q.size(-1))).softmax(-1),
            "That is QᵀK, widths against widths. Q Kᵀ has tokens against tokens: transpose key, not query.",
        ),
        Mistake(
            lambda q, k: (q @ k / math.sqrt(q.size(-1))).softmax(-1),
            "The key is not transposed, which runs only where n = d_k. A match is a dot product of rows: query @ key.mT.",
        ),
        Mistake(
            lambda q, k: (q @ k.permute(*reversed(range(k.dim()))) / math.sqrt(q.size(-1))).softmax(-1),
            "Right without a batch. key.T turns all axes round, the batch too: swap the last two only, key.transpose(-2, -1).",
        ),
        Mistake(
            lambda q, k: (q @ k.transpose(1, 2) / math.sqrt(q.size(-1))).softmax(-1),
            "Right with a batch, but axes 1 and 2 are not always there. Count from the end: key.transpose(-2, -1).",
        ),
        Mistake(
            lambda q, k: _scaled(q, k) / _scaled(q, k).sum(-1, keepdim=True),
            "You divide by the sum without taking exp first. Scores have both signs, so these are no shares: use softmax.",
        ),
        Mistake(_scaled, "Those are the scaled scores. The softmax along each row is missing."),
        Mistake(lambda q, k: _scaled(q, k).exp(), "exp is half of a softmax: divide each row by its sum."),
        Mistake(
            lambda q, k: _scaled(q, k).sigmoid(),
            "sigmoid judges each key alone. Softmax lets the keys compete, so that each row sums to 1.",
        ),
        Mistake(
            lambda q, k: F.one_hot(_scaled(q, k).argmax(-1), q.size(-2)).to(q.dtype),
            "That is the hard look-up: all to the best key. Softmax keeps a share for the others, and has a gradient.",
        ),
        Mistake(lambda q, k: _scaled(q, k).log_softmax(-1), "Those are logarithms of the weights: softmax, not log_softmax."),
        Mistake(
            lambda q, k: (q @ k.mT).softmax(-1) / math.sqrt(q.size(-1)),
            "You scale after the softmax, so rows no longer sum to 1. Scale the scores, then take the softmax.",
        ),
    ),
)
