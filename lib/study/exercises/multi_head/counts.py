"""Exercises 4 and 5: how many parameters, and how many bytes of cache, an attention with grouped heads has.

Their answers are whole numbers. `Counted` hands them to the checks, which compare tensors.
"""

from collections.abc import Callable
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake


class Counted:
    """The reader's function, with a number that it returns as a tensor. What is no number is passed on as it is."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.__code__ = getattr(function, "__code__", None)  # an empty body is told by its code

    def __call__(self, *arguments: Any) -> Any:
        value = self.function(*arguments)
        return torch.tensor(float(value), dtype=torch.float64) if isinstance(value, Number) else value


def counted(answer: Any) -> Any:
    """`Counted(answer)` for a function; anything else as it is."""
    return Counted(answer) if callable(answer) else answer


def _parameter_cases() -> list[Case]:
    sizes = ((12, 3, 3, False), (12, 3, 1, False), (12, 3, 3, True), (16, 4, 2, True), (64, 8, 1, True), (24, 12, 4, False))
    return [dict(zip(("d_model", "num_heads", "num_kv_heads", "bias"), size, strict=True)) for size in sizes]


def _parameters(
    queries: Callable[[int, int], int] = lambda H, H_kv: H,
    keys: Callable[[int, int], int] = lambda H, H_kv: H_kv,
    values: Callable[[int, int], int] = lambda H, H_kv: H_kv,
    joined: Callable[[int, int], int] = lambda H, H_kv: H,
    biases: Callable[[int, int, int, int], int] = lambda d_model, d, H, H_kv: (H + 2 * H_kv) * d + d_model,
) -> Callable[..., Tensor]:
    """A count from the number of heads in each projection, and the number of biases."""

    def count(d_model, num_heads, num_kv_heads, bias):
        H, H_kv, d = num_heads, num_kv_heads, d_model // num_heads
        weights = sum(heads(H, H_kv) * d * d_model for heads in (queries, keys, values, joined))
        return torch.tensor(float(weights + (biases(d_model, d, H, H_kv) if bias else 0)), dtype=torch.float64)

    return count


def _cache_cases() -> list[Case]:
    names = ("num_layers", "batch", "length", "d_model", "num_heads", "num_kv_heads", "bytes_per_number")
    sizes = ((6, 1, 100, 512, 8, 8, 4), (6, 1, 100, 512, 8, 2, 4), (2, 3, 50, 64, 4, 1, 2), (4, 2, 10, 96, 12, 3, 2))
    return [dict(zip(names, size, strict=True)) for size in sizes]


def _cache(count: Callable[..., float]) -> Callable[..., Tensor]:
    """A count in the terms: layers N, batch B, length S, d_model, heads H and H_kv, bytes of a number b."""
    return lambda *sizes: torch.tensor(float(count(*sizes)), dtype=torch.float64)


def _facts(case: Case, value: Tensor) -> str:
    return f"you count {value.item():,.10g}"


PARAMETERS = Exercise(
    hint="Add up four matrices. W_q takes d_model to num_heads · d, W_k and W_v to num_kv_heads · d each, W_o takes "
    "num_heads · d back to d_model, where d = d_model / num_heads. With bias, each adds one number for each output.",
    why="Heads cut the width, so num_heads itself cancels out. Only num_kv_heads changes the count.",
    shapes="All four inputs are plain numbers (bias is True or False), and so is the answer. d = d_model // num_heads.",
    next_step="Try d_model = 12 with 3 heads of each kind and no bias first: four matrices of 12 · 12 make 576.",
    right=_parameters(),
    cases=_parameter_cases,
    facts=_facts,
    mistakes=(
        Mistake(
            _parameters(keys=lambda H, H_kv: H, values=lambda H, H_kv: H, biases=lambda d_model, d, H, H_kv: 4 * d_model),
            "That is 4 · d_model², right for num_kv_heads = num_heads only. W_k and W_v have num_kv_heads · d outputs.",
        ),
        Mistake(
            lambda d_model, num_heads, num_kv_heads, bias: num_heads * _parameters()(d_model, num_heads, num_kv_heads, bias),
            "You count the whole layer once for each head. Heads split the width: each has d = d_model / num_heads columns.",
        ),
        Mistake(
            _parameters(joined=lambda H, H_kv: 0, biases=lambda d_model, d, H, H_kv: (H + 2 * H_kv) * d),
            "The output projection W_o is missing, num_heads · d by d_model.",
        ),
        Mistake(_parameters(joined=lambda H, H_kv: 0), "The matrix of the output projection W_o is missing."),
        Mistake(_parameters(biases=lambda d_model, d, H, H_kv: 0), "The biases are missing: one number for each output."),
        Mistake(
            _parameters(biases=lambda d_model, d, H, H_kv: 4 * d_model),
            "The matrices are right. But the biases of W_k and W_v are only num_kv_heads · d each.",
        ),
        Mistake(
            _parameters(biases=lambda d_model, d, H, H_kv: (H + 2 * H_kv) * d),
            "The bias of the output projection is missing, d_model numbers.",
        ),
        Mistake(
            _parameters(values=lambda H, H_kv: H),
            "Only one of keys and values is shared in your count. W_k and W_v both have num_kv_heads · d outputs.",
        ),
        Mistake(
            _parameters(queries=lambda H, H_kv: H_kv),
            "Queries are not shared: W_q has num_heads · d outputs, whatever num_kv_heads.",
        ),
        Mistake(
            _parameters(values=lambda H, H_kv: 0),
            "One matrix for keys and values together is one too few: each has its own.",
        ),
    ),
)

CACHE_BYTES = Exercise(
    hint="For each layer, sequence and position the cache holds one key and one value for each of num_kv_heads heads, "
    "each d = d_model / num_heads numbers wide.",
    why="The cache counts key and value heads alone. With one for every eight query heads it is an eighth as large.",
    shapes="All inputs are plain numbers, and so is the answer. d = d_model // num_heads.",
    next_step="Try 1 layer, batch 1, length 1, d_model 8, 2 heads of each kind, 1 byte: a key and a value of 8 numbers, 16.",
    right=_cache(lambda N, B, S, d_model, H, H_kv, b: 2 * N * B * S * H_kv * (d_model // H) * b),
    cases=_cache_cases,
    facts=_facts,
    mistakes=(
        Mistake(
            _cache(lambda N, B, S, d_model, H, H_kv, b: N * B * S * H_kv * (d_model // H) * b),
            "Keys or values are missing: the cache holds both, so twice as much.",
        ),
        Mistake(
            _cache(lambda N, B, S, d_model, H, H_kv, b: 2 * N * B * S * d_model * b),
            "That is the cache without sharing. It holds num_kv_heads heads, each of d_model / num_heads numbers.",
        ),
        Mistake(
            _cache(lambda N, B, S, d_model, H, H_kv, b: 3 * N * B * S * H_kv * (d_model // H) * b),
            "Queries are not kept: a query is asked once. The cache holds keys and values alone.",
        ),
        Mistake(
            _cache(lambda N, B, S, d_model, H, H_kv, b: 2 * N * B * S * H_kv * (d_model // H)),
            "That is the count of numbers. Each takes bytes_per_number bytes.",
        ),
        Mistake(
            _cache(lambda N, B, S, d_model, H, H_kv, b: 2 * B * S * H_kv * (d_model // H) * b),
            "That is one layer's cache. Every layer keeps its own.",
        ),
        Mistake(
            _cache(lambda N, B, S, d_model, H, H_kv, b: 2 * N * S * H_kv * (d_model // H) * b),
            "That is the cache of one sequence. Every sequence of the batch keeps its own.",
        ),
        Mistake(
            _cache(lambda N, B, S, d_model, H, H_kv, b: 2 * N * B * S * S * H_kv * (d_model // H) * b),
            "The cache grows with the length, not with its square: scores are not kept.",
        ),
        Mistake(
            _cache(lambda N, B, S, d_model, H, H_kv, b: 2 * N * B * S * H_kv * d_model * b),
            "A head is not d_model wide, but d_model / num_heads.",
        ),
    ),
)
