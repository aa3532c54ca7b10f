"""The exercises of the chapter on heads. Each check takes the reader's answer and prints a verdict with advice.

from lib.study.exercises import multi_head as check
check.split_heads(split_heads)
"""

from typing import Any

from lib.study.exercises import check
from lib.study.exercises.multi_head.counts import CACHE_BYTES, PARAMETERS, counted
from lib.study.exercises.multi_head.loop import MULTI_HEAD
from lib.study.exercises.multi_head.merge import MERGE_HEADS
from lib.study.exercises.multi_head.split import SPLIT_HEADS


def split_heads(answer: Any) -> None:
    """Check `split_heads(x, num_heads)`: (B, n, h·d) -> (B, h, n, d), head i with the i-th d columns of every token."""
    check(SPLIT_HEADS, answer)


def merge_heads(answer: Any) -> None:
    """Check `merge_heads(heads)`: (B, h, n, d) -> (B, n, h·d), the heads side by side for every token."""
    check(MERGE_HEADS, answer)


def multi_head(answer: Any) -> None:
    """Check `multi_head(x, w_q, w_k, w_v, w_o, num_heads)`: multi-head self-attention without a mask, its output alone.

    x is (B, n, d_model), w_q, w_k and w_v (d_model, h·d), w_o (h·d, d_model), each used as x @ w. Head i owns the i-th d
    columns of the first three. The answer returns (B, n, d_model).
    """
    check(MULTI_HEAD, answer)


def parameters(answer: Any) -> None:
    """Check `parameters(d_model, num_heads, num_kv_heads, bias)`: how many numbers the layer learns, a whole number."""
    check(PARAMETERS, counted(answer))


def cache_bytes(answer: Any) -> None:
    """Check `cache_bytes(num_layers, batch, length, d_model, num_heads, num_kv_heads, bytes_per_number)`, a whole number."""
    check(CACHE_BYTES, counted(answer))
