"""Exercise 5: one head of self-attention with a mask."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from lib.attention import scaled_dot_product_attention
from lib.study.exercises import Case, Exercise, Mistake, random_tensor
from lib.study.exercises.self_attention.maps import projections


def _cases() -> list[Case]:
    cases = []
    for i, (shape, d_k, d_v) in enumerate([((5, 6), 4, 3), ((2, 4, 8), 3, 8), ((3, 6, 6), 6, 6), ((2, 5, 12), 16, 7)]):
        n = shape[-2]
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        # A mask without a pattern, so that nobody passes with a causal mask of their own. Everyone may attend to themselves.
        mask = causal if i == 0 else (random_tensor(n, n, seed=80 + i) > 0) | torch.eye(n, dtype=torch.bool)
        weights = projections(shape[-1], d_k, d_v, seed=100 + 10 * i)
        weights["w_q"] = weights["w_q"] * 2  # scores of a size at which the scale matters
        cases.append({"x": random_tensor(*shape, seed=90 + i), **weights, "mask": mask})
    return [*cases, _low_scores()]


def _low_scores() -> Case:
    """Every allowed score is −40 and every masked one 0 or 40, so that only a mask far below any score shuts them out."""
    x = torch.eye(3)
    w_q = torch.eye(3) * 40 * math.sqrt(3)
    w_k = torch.tensor([[-1.0, 0.0, 1.0], [-1.0, -1.0, 0.0], [0.0, -1.0, -1.0]])
    return {"x": x, "w_q": w_q, "w_k": w_k, "w_v": random_tensor(3, 2, seed=140), "mask": w_k.T < 0}


def _right(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, mask: Tensor) -> Tensor:
    return scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v, mask)


def _wrong(
    scores: Callable[[Tensor, Tensor], Tensor] = lambda s, mask: s.masked_fill(~mask, -torch.inf),
    scale: Callable[[int, int, int, int], float] = lambda n, d_model, d_k, d_v: 1 / math.sqrt(d_k),
    weights: Callable[[Tensor, Tensor], Tensor] = lambda s, mask: s.softmax(-1),
    values: Callable[[Tensor, Tensor], Tensor] = lambda x, w_v: x @ w_v,
) -> Callable[..., Tensor]:
    """A head with one step exchanged: how the scores are masked, their scale, the softmax, or the values."""

    def head(x, w_q, w_k, w_v, mask):
        factor = scale(*x.shape[-2:], w_q.size(-1), w_v.size(-1))
        s = scores((x @ w_q) @ (x @ w_k).mT * factor, mask)
        return weights(s, mask) @ values(x, w_v)

    return head


def _scores_of_keys(x, w_q, w_k, w_v, mask):
    return scaled_dot_product_attention(x @ w_k, x @ w_q, x @ w_v, mask)


def _with_weights(x, w_q, w_k, w_v, mask):
    return scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v, mask, need_weights=True)


def _unmasked(scores, mask):
    return scores


SELF_ATTENTION = Exercise(
    hint="Put the steps together: q, k and v from x; scaled scores; −inf in the scores wherever mask is False; softmax along "
    "each row; weights @ v.",
    why="This is a whole head of a Transformer: all else is several of them side by side, and layers around them.",
    shapes="Write the shapes down: q and k (…, n, d_k), v (…, n, d_v), scores (…, n, n) like the mask (n, n), "
    "output (…, n, d_v).",
    next_step="Try mask = torch.ones(n, n, dtype=torch.bool) first; when that is right, the mask is what is left to mend.",
    right=_right,
    cases=_cases,
    mistakes=(
        Mistake(
            _wrong(scores=_unmasked),
            "That is the output without any mask. If you call masked_fill, keep what it returns: it gives a new tensor "
            "and leaves the old one as it was.",
        ),
        Mistake(
            _wrong(scores=lambda s, mask: s.masked_fill(mask, -torch.inf)),
            "The mask is inverted: True means may attend here, so −inf goes where it is False, masked_fill(~mask, −inf).",
        ),
        Mistake(
            _wrong(scores=_unmasked, weights=lambda s, mask: s.softmax(-1) * mask),
            "The mask comes after the softmax, so the rows of weights no longer sum to 1. Put −inf into the scores before it.",
        ),
        Mistake(
            _wrong(scores=lambda s, mask: s.masked_fill(~mask, 0.0)),
            "A masked score of 0 (or of −1e-9, where −1e9 was meant) is an ordinary score: exp(0) = 1. It must be −inf.",
        ),
        Mistake(
            _wrong(scores=lambda s, mask: s + mask),
            "Adding a boolean mask adds 1 where it is True. Either masked_fill(~mask, −inf), or add a mask of 0 and −inf.",
        ),
        Mistake(
            _wrong(scores=lambda s, mask: s.masked_fill(~mask.T, -torch.inf)),
            "Rows and columns of the mask are swapped. mask[i, j] says whether query i may attend to key j, like the scores.",
        ),
        Mistake(_wrong(scale=lambda n, d_model, d_k, d_v: 1.0), "There is no scale: divide the scores by √d_k."),
        Mistake(_wrong(scale=lambda n, d_model, d_k, d_v: 1 / d_k), "Your scale is d_k, not √d_k."),
        Mistake(
            _wrong(scale=lambda n, d_model, d_k, d_v: math.sqrt(d_k)), "You multiply the scores by √d_k. Divide them by it."
        ),
        Mistake(
            _wrong(scale=lambda n, d_model, d_k, d_v: 1 / math.sqrt(d_model)),
            "Your scale is √d_model. The dot product runs over the d_k parts of a query: take the width of q, not of x.",
        ),
        Mistake(
            _wrong(scale=lambda n, d_model, d_k, d_v: 1 / math.sqrt(d_v)),
            "Your scale is √d_v. The dot product runs over the d_k parts of a query: take the width of q, not of v.",
        ),
        Mistake(
            _wrong(scale=lambda n, d_model, d_k, d_v: 1 / math.sqrt(n)),
            "Your scale is √n. The dot product runs over the d_k parts of a query: take the width of q, not the length.",
        ),
        Mistake(
            _wrong(weights=lambda s, mask: s.softmax(-2)),
            "The softmax runs over the queries. Each query shares itself out over the keys: dim=-1.",
        ),
        Mistake(
            _wrong(weights=lambda s, mask: s.softmax(1)),
            "dim=1 is the axis of the keys only as long as there is no batch in front. Count from the end: dim=-1.",
        ),
        Mistake(
            _wrong(weights=lambda s, mask: s.softmax(0)),
            "The softmax runs over dim=0: the queries, or the batch where there is one. The keys are the last axis: dim=-1.",
        ),
        Mistake(
            _wrong(values=lambda x, w_v: x),
            "The weights are multiplied with x. What is blended are the values, v = x @ w_v.",
        ),
        Mistake(
            _wrong(weights=lambda s, mask: s), "The softmax is missing: the scores themselves, −inf and all, weigh the values."
        ),
        Mistake(lambda *args: _with_weights(*args)[1], "Those are the weights. The output is their product with the values."),
        Mistake(_with_weights, "The numbers are right, but return the output alone, without the weights."),
        Mistake(_scores_of_keys, "Query and key are swapped: row i of the scores belongs to query i, so q stands on the left."),
    ),
)
