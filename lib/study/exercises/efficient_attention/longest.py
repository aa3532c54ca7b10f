"""Exercise 4: how long a text the cache of grouped heads holds in a given memory."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake

NAMES = ("memory", "num_layers", "batch", "d_model", "num_heads", "num_kv_heads", "bytes_per_number")


def _cases() -> list[Case]:
    sizes = (
        (10**9, 12, 1, 768, 12, 12, 4),
        (10**9, 12, 1, 768, 12, 4, 4),
        (2**24, 6, 3, 64, 4, 1, 2),
        (10**8, 4, 2, 96, 12, 3, 2),
        (1_000_000, 32, 1, 4096, 32, 8, 2),
    )
    return [dict(zip(NAMES, size, strict=True)) for size in sizes]


def _longest(token: Callable[..., float], rounding: Callable[[float], float] = math.floor):
    """A version from the bytes of a token, in the terms: layers N, batch B, d_model, heads H and H_kv, bytes of a number b."""

    def version(memory, *sizes) -> Tensor:
        return torch.tensor(float(rounding(memory / token(*sizes))), dtype=torch.float64)

    return version


def _token(N, B, d_model, H, H_kv, b) -> int:
    return 2 * N * B * H_kv * (d_model // H) * b


LONGEST_TEXT = Exercise(
    hint="First the bytes of one token: in each layer and text a key and a value for each of num_kv_heads heads, each "
    "d_model / num_heads numbers wide. Then ask how often that goes into the memory.",
    why="Sharing one key head among four query heads makes room for a text four times as long, or for four times the texts.",
    shapes="All inputs are plain numbers, and so is the answer, a whole number: // divides and drops the rest.",
    next_step="Try 1 layer, 1 text, d_model 8, 2 heads of each kind, 1 byte: a token takes 16 bytes, and 100 bytes hold 6.",
    right=_longest(_token),
    cases=_cases,
    facts=lambda case, value: f"you find {value.item():,.10g}",
    mistakes=(
        Mistake(_longest(_token, float), "A part of a token cannot be kept: round down, to a whole number."),
        Mistake(_longest(_token, math.ceil), "Rounded up, the last token does not fit. Round down."),
        Mistake(
            _longest(lambda N, B, d_model, H, H_kv, b: 2 * N * B * d_model * b),
            "That is the cache without sharing. It holds num_kv_heads heads, each of d_model / num_heads numbers.",
        ),
        Mistake(
            _longest(lambda *sizes: _token(*sizes) / 2),
            "Keys or values are missing: a token takes both, so half as many fit.",
        ),
        Mistake(
            _longest(lambda *sizes: _token(*sizes) * 1.5), "Queries are not kept: a query is asked once. Keys and values alone."
        ),
        Mistake(
            _longest(lambda N, B, d_model, H, H_kv, b: _token(1, B, d_model, H, H_kv, b)),
            "That is one layer's cache. Every layer keeps its own.",
        ),
        Mistake(
            _longest(lambda N, B, d_model, H, H_kv, b: _token(N, 1, d_model, H, H_kv, b)),
            "All texts of the batch share the memory, and each keeps its own keys and values.",
        ),
        Mistake(
            _longest(lambda N, B, d_model, H, H_kv, b: _token(N, B, d_model, H, H_kv, 1)),
            "You count numbers as bytes. Each takes bytes_per_number bytes.",
        ),
        Mistake(
            _longest(lambda N, B, d_model, H, H_kv, b: 2 * N * B * H_kv * d_model * b),
            "A head is not d_model wide, but d_model / num_heads.",
        ),
        Mistake(
            _longest(lambda N, B, d_model, H, H_kv, b: 2 * N * B * (H // H_kv) * (d_model // H) * b),
            "num_heads / num_kv_heads is how many query heads share a key head. What is kept is num_kv_heads heads.",
        ),
    ),
)
