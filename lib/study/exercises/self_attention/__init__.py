"""The exercises of the chapter on self-attention. Each check takes the reader's answer and prints a verdict with advice.

    from lib.study.exercises import self_attention as check
    check.qkv(qkv)

One module here for each exercise: its inputs, its texts, and the wrong versions it knows, right beside their advice.
"""

from typing import Any

from lib.study.exercises import check
from lib.study.exercises.self_attention.head import SELF_ATTENTION
from lib.study.exercises.self_attention.lookup import SOFT_LOOKUP
from lib.study.exercises.self_attention.maps import QKV
from lib.study.exercises.self_attention.shape_table import SHAPES
from lib.study.exercises.self_attention.weights import ATTENTION_WEIGHTS
from lib.study.exercises.table import check_table


def qkv(answer: Any) -> None:
    """Check `qkv(x, w_q, w_k, w_v)`: the query, key and value of every token, three maps of one x.

    x is (n, d_model) or (B, n, d_model), a weight (d_model, width). The answer returns (q, k, v).
    """
    check(QKV, answer)


def shapes(answer: Any) -> None:
    """Check a dict from the name of each tensor of self-attention to its shape, for B=2, n=5, d_model=12, d_k=4, d_v=6.

    Names: x, W_q, W_k, W_v, Q, K, V, scores, weights, output. A weight stands in x @ W, so it is (in, out).
    """
    check_table(SHAPES, answer)


def attention_weights(answer: Any) -> None:
    """Check `attention_weights(query, key)`: the softmax of the scaled scores.

    Both inputs are (n, d_k) or (B, n, d_k). The answer returns the weights, (n, n) or (B, n, n).
    """
    check(ATTENTION_WEIGHTS, answer)


def soft_lookup(answer: Any) -> None:
    """Check `soft_lookup(query, keys, values, temperature)`: softmax(keys · query / temperature), as weights of the values.

    One query (d,), keys (n, d), values (n, d_v), the temperature a positive number. The answer returns the blend, (d_v,).
    """
    check(SOFT_LOOKUP, answer)


def self_attention(answer: Any) -> None:
    """Check `self_attention(x, w_q, w_k, w_v, mask)`: one head, its output alone.

    x is (n, d_model) or (B, n, d_model), the weights as in `qkv`; the mask is (n, n), True = may attend, with no empty row.
    The answer returns (n, d_v) or (B, n, d_v).
    """
    check(SELF_ATTENTION, answer)
