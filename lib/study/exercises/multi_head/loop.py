"""Exercise 3: multi-head attention as a loop over heads."""

from collections.abc import Callable

import torch
from torch import Tensor

from lib.attention import scaled_dot_product_attention
from lib.study.exercises import Case, Exercise, Mistake, random_tensor
from lib.study.exercises.multi_head import merge, split


def _cases() -> list[Case]:
    cases = []
    for i, (B, n, d_model, h, d) in enumerate([(2, 5, 12, 3, 4), (3, 4, 6, 2, 6), (2, 6, 8, 4, 2), (1, 3, 5, 1, 4)]):
        seed = 240 + 10 * i
        # Scores of a size at which the scale matters.
        w_q, w_k, w_v = (random_tensor(d_model, h * d, seed=seed + j) * d_model**-0.5 * (2 if j < 2 else 1) for j in range(3))
        w_o = random_tensor(h * d, d_model, seed=seed + 3) * (h * d) ** -0.5
        x = random_tensor(B, n, d_model, seed=seed + 4)
        cases.append({"x": x, "w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o, "num_heads": h})
    return cases


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v)


def _version(
    cut: Callable[[Tensor, int], Tensor] = split.right,
    attend: Callable[[Tensor, Tensor, Tensor], Tensor] = _attend,
    join: Callable[[Tensor], Tensor] = merge.right,
    project: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> Callable[..., Tensor]:
    """Multi-head attention with one step exchanged: the cut into heads, the attention, the joining or the last projection."""

    def multi_head(x, w_q, w_k, w_v, w_o, num_heads):
        return project(join(attend(*(cut(x @ w, num_heads) for w in (w_q, w_k, w_v)))), w_o)

    return multi_head


def _interleave(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)  # (B, n, d·h) -> (B, n, d, h) -> (B, h, n, d)


def _scaled_by_all_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, scale=(q.size(1) * q.size(-1)) ** -0.5)


def _first_weights(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    _, weights = scaled_dot_product_attention(q, k, v, need_weights=True)
    return weights[:, :1] @ v


def _softmax_over_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT * q.size(-1) ** -0.5, dim=-2) @ v


MULTI_HEAD = Exercise(
    hint="For each head i take its d columns of W_q, W_k and W_v, that is w_q[:, i·d : (i + 1)·d] and so on; let it attend as "
    "one head does; put the heads side by side with torch.cat; multiply with w_o.",
    why="A loop over heads is the definition. The version with one product and a transpose is the same, in one product.",
    shapes="Write the shapes down: w_q is (d_model, h·d), so one head's part is (d_model, d), its output (B, n, d); h of them "
    "side by side are (B, n, h·d), and times w_o (B, n, d_model).",
    next_step="Try num_heads = 1 first: then it is self-attention times w_o.",
    right=_version(),
    cases=_cases,
    mistakes=(
        Mistake(
            _version(attend=_scaled_by_all_heads),
            "Your scale is the width of all heads together. Each head has its own dot product: divide by √d, with d = h·d / h.",
        ),
        Mistake(
            _version(attend=lambda q, k, v: scaled_dot_product_attention(q, k, v, scale=1.0)),
            "There is no scale: divide each head's scores by √d.",
        ),
        Mistake(
            _version(attend=_softmax_over_queries),
            "Your softmax runs over the queries. Each row of the weights sums to 1: take it over the keys, dim=-1.",
        ),
        Mistake(
            _version(cut=lambda x, num_heads: x[:, None]),
            "That is one wide head. Cut queries, keys and values into num_heads parts of d columns, each with its own softmax.",
        ),
        Mistake(
            _version(project=lambda joined, w_o: joined),
            "The output projection is missing: the heads, side by side, are multiplied with w_o.",
        ),
        Mistake(
            _version(cut=split.scrambled, join=merge.scrambled),
            "Heads are made, and joined, by a reshape without a transpose. Cut the last axis alone: (B, n, h, d), then swap.",
        ),
        Mistake(
            _version(cut=split.scrambled),
            "Heads are made by a reshape without a transpose. Cut the last axis alone: (B, n, h, d), then swap.",
        ),
        Mistake(
            _version(join=merge.scrambled),
            "Heads are joined by a reshape without a transpose. Swap heads and tokens first, then join the last two axes.",
        ),
        Mistake(
            _version(cut=_interleave),
            "Each head takes every h-th column. Head i owns the d neighboring columns i·d … (i + 1)·d − 1.",
        ),
        Mistake(
            _version(attend=_first_weights),
            "All heads use the first head's weights. Queries and keys are cut too, so that each head has weights of its own.",
        ),
        Mistake(
            _version(join=lambda heads: merge.right(heads.flip(1))),
            "The heads stand in reverse order. The first d rows of w_o are meant for head 0.",
        ),
        Mistake(
            _version(project=lambda joined, w_o: joined @ w_o / w_o.size(0)),
            "The result is divided once too often: the output projection takes the heads as they are, without a mean.",
        ),
        Mistake(
            lambda x, w_q, w_k, w_v, w_o, num_heads: _version()(x, w_k, w_q, w_v, w_o, num_heads),
            "Query and key are swapped: row i of the scores belongs to query i, so q stands on the left.",
        ),
    ),
)
