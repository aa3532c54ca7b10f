"""Exercise: how many parameters a decoder layer has. The answer is a whole number, see `multi_head.counts.Counted`."""

from collections.abc import Callable

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake


def _cases() -> list[Case]:
    sizes = ((8, 32, 8), (8, 32, 12), (16, 20, 6), (512, 2048, 512))
    return [dict(zip(("d_model", "dim_feedforward", "d_memory"), size, strict=True)) for size in sizes]


def _layer(
    *, own: int = 4, queries: int = 2, keys: int = 2, bias: float = 1, wide: float = 1, norms: int = 3, norm: int = 2
) -> Callable[..., Tensor]:
    """A count from what it consists of.

    Args:
        own: matrices of self-attention, each d_model by d_model.
        queries, keys: matrices of cross-attention that meet d_model and d_memory.
        bias, wide: how often the biases of attention, and those of the feed-forward network, are counted.
        norms, norm: number of norms, and of numbers for each column in one.
    """

    def count(d_model: int, dim_feedforward: int, d_memory: int) -> Tensor:
        attention = own * d_model**2 + queries * d_model**2 + keys * d_model * d_memory
        attention += bias * (own + queries + keys) * d_model
        feed_forward = 2 * d_model * dim_feedforward + wide * (dim_feedforward + d_model)
        return torch.tensor(float(attention + feed_forward + norms * norm * d_model), dtype=torch.float64)

    return count


DECODER_PARAMETERS = Exercise(
    hint="Add up four parts. Self-attention: four maps d_model → d_model. Cross-attention: W_q and W_o the same, but W_k and "
    "W_v are d_memory → d_model. Feed-forward: d_model → dim_feedforward → d_model. Each map adds one bias for each output. "
    "Three norms: two numbers for each of d_model columns.",
    why="The width of the memory stands in two matrices of cross-attention and nowhere else. Neither length is in the count.",
    shapes="All three inputs are whole numbers, and so is the answer.",
    next_step="Try d_model = 8, dim_feedforward = 32, d_memory = 8 in parts: 288 for each attention, 552, and 48 for the "
    "norms, 1,176 together.",
    right=_layer(),
    cases=_cases,
    facts=lambda case, value: f"you count {value.item():,.10g}",
    mistakes=(
        Mistake(
            _layer(queries=0, keys=0, norms=2),
            "That is an encoder layer. A decoder layer has cross-attention too, with a norm of its own.",
        ),
        Mistake(
            _layer(queries=0, keys=0), "Cross-attention is missing: a second attention, its keys and values from the memory."
        ),
        Mistake(
            _layer(queries=4, keys=0),
            "That is right where d_memory = d_model. But W_k and W_v of cross-attention read the memory: d_memory → d_model.",
        ),
        Mistake(
            _layer(queries=0, keys=4),
            "Not all of cross-attention reads the memory: queries come from the decoder, and W_o maps d_model → d_model.",
        ),
        Mistake(
            _layer(queries=1, keys=3),
            "One matrix too many has the width d_memory. Only W_k and W_v read the memory.",
        ),
        Mistake(
            _layer(queries=3, keys=1),
            "One matrix too few has the width d_memory. Both W_k and W_v read the memory.",
        ),
        Mistake(_layer(norms=2), "One norm is missing: there are three sub-layers, and each has its own."),
        Mistake(_layer(norm=1), "A norm has two numbers for each column, a factor and a summand."),
        Mistake(_layer(norms=0), "The norms are missing: three, with two numbers for each of d_model columns."),
        Mistake(_layer(bias=0), "The biases of attention are missing: eight maps, with d_model outputs each."),
        Mistake(_layer(wide=0), "The biases of the feed-forward network are missing: dim_feedforward and d_model."),
        Mistake(_layer(bias=0, wide=0), "The biases are missing: one number for each output of each map."),
        Mistake(
            _layer(own=3, queries=1),
            "The output projection W_o is missing in both attentions, d_model by d_model.",
        ),
    ),
)
