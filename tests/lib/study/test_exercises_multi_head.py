"""The exercises on heads: right answers of any style pass, wrong ones never do and get the advice that fits."""

import math

import pytest
import torch

from lib.multihead import MultiHeadAttention
from lib.study.exercises import multi_head as check
from lib.study.exercises import run, same, verdict
from lib.study.exercises.multi_head import MULTI_HEAD, counted
from lib.study.exercises.multi_head.counts import CACHE_BYTES, PARAMETERS
from lib.study.exercises.multi_head.merge import MERGE_HEADS
from lib.study.exercises.multi_head.split import SPLIT_HEADS
from tests.lib.study.exercise_answers import assert_advice, pairs

EXERCISES = {
    "split_heads": SPLIT_HEADS,
    "merge_heads": MERGE_HEADS,
    "multi_head": MULTI_HEAD,
    "parameters": PARAMETERS,
    "cache_bytes": CACHE_BYTES,
}


# ---- right answers, in several styles


def split_by_view(x, num_heads):
    B, L, width = x.shape
    return x.view(B, L, num_heads, width // num_heads).permute(0, 2, 1, 3)


def split_by_chunks(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def merge_by_reshape(heads):
    B, H, L, d = heads.shape
    return heads.permute(0, 2, 1, 3).contiguous().view(B, L, H * d)


def merge_by_cat(heads):
    return torch.cat(heads.unbind(1), dim=-1)


def softmax_of(q, k):
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1)


def multi_head_by_loop(x, w_q, w_k, w_v, w_o, num_heads):
    d = w_q.shape[1] // num_heads
    found = []
    for i in range(num_heads):
        own = slice(i * d, (i + 1) * d)
        found.append(softmax_of(x @ w_q[:, own], x @ w_k[:, own]) @ (x @ w_v[:, own]))
    return torch.cat(found, dim=-1) @ w_o


def multi_head_at_once(x, w_q, w_k, w_v, w_o, num_heads):
    q, k, v = (split_by_view(x @ w, num_heads) for w in (w_q, w_k, w_v))
    return merge_by_cat(softmax_of(q, k) @ v) @ w_o


def multi_head_as_a_sum(x, w_q, w_k, w_v, w_o, num_heads):
    total = 0
    for q, k, v, o in zip(*(w.chunk(num_heads, 1) for w in (w_q, w_k, w_v)), w_o.chunk(num_heads, 0), strict=True):
        total = total + softmax_of(x @ q, x @ k) @ (x @ v) @ o
    return total


def count_by_matrices(d_model, num_heads, num_kv_heads, bias):
    d = d_model // num_heads
    outputs = [num_heads * d, num_kv_heads * d, num_kv_heads * d]
    weights = sum(d_model * n for n in outputs) + num_heads * d * d_model
    return weights + (sum(outputs) + d_model if bias else 0)


def count_by_the_library(d_model, num_heads, num_kv_heads, bias):
    layer = MultiHeadAttention(d_model, num_heads, num_kv_heads=num_kv_heads, bias=bias)
    return sum(p.numel() for p in layer.parameters())


def bytes_by_product(num_layers, batch, length, d_model, num_heads, num_kv_heads, bytes_per_number):
    return num_layers * batch * length * 2 * num_kv_heads * d_model // num_heads * bytes_per_number


RIGHT = {
    "split_heads": [split_by_view, split_by_chunks],
    "merge_heads": [merge_by_reshape, merge_by_cat],
    "multi_head": [multi_head_by_loop, multi_head_at_once, multi_head_as_a_sum],
    "parameters": [count_by_matrices, count_by_the_library, lambda *sizes: torch.tensor(count_by_matrices(*sizes))],
    "cache_bytes": [bytes_by_product, lambda *sizes: float(bytes_by_product(*sizes))],
}


@pytest.mark.parametrize(("name", "answer"), pairs(RIGHT))
def test_a_right_answer_of_any_style_passes(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out == f"Right. {EXERCISES[name].why}\n"


# ---- wrong answers, written as a reader would, with words that the advice must hold


def loop_with(scale=lambda d, width: math.sqrt(d), columns=lambda i, d, H: slice(i * d, (i + 1) * d), last=torch.matmul):
    def answer(x, w_q, w_k, w_v, w_o, num_heads):
        width = w_q.size(1)
        d = width // num_heads
        found = []
        for i in range(num_heads):
            q, k, v = (x @ w[:, columns(i, d, num_heads)] for w in (w_q, w_k, w_v))
            found.append(torch.softmax(q @ k.mT / scale(d, width), -1) @ v)
        return last(torch.cat(found, -1), w_o)

    return answer


def loop_with_the_wrong_softmax(x, w_q, w_k, w_v, w_o, num_heads):
    found = []
    for q, k, v in zip(*(w.chunk(num_heads, 1) for w in (w_q, w_k, w_v)), strict=True):
        scores = (x @ q) @ (x @ k).mT / math.sqrt(q.size(1))
        found.append(torch.softmax(scores, dim=1) @ (x @ v))
    return torch.cat(found, -1) @ w_o


def view_at_both_ends(x, w_q, w_k, w_v, w_o, num_heads):
    B, L, _ = x.shape
    q, k, v = ((x @ w).view(B, num_heads, L, -1) for w in (w_q, w_k, w_v))
    return (softmax_of(q, k) @ v).view(B, L, -1) @ w_o


def view_at_the_end(x, w_q, w_k, w_v, w_o, num_heads):
    q, k, v = (split_by_view(x @ w, num_heads) for w in (w_q, w_k, w_v))
    return (softmax_of(q, k) @ v).reshape(x.size(0), x.size(1), -1) @ w_o


WRONG = {
    "split_heads": [
        (lambda x, h: x.view(x.size(0), h, x.size(1), -1), "reshape without a transpose"),
        (lambda x, h: x.view(*x.shape[:2], h, -1), "the heads stand behind the tokens"),
        (lambda x, h: x.view(*x.shape[:2], -1, h).permute(0, 3, 1, 2), "every h-th column"),
        (lambda x, h: x.view(*x.shape[:2], -1, h).transpose(1, 2), "you made it the width of one"),
        (lambda x, h: split_by_view(x, h).mT, "A row is a token"),
        (lambda x, h: split_by_view(x, h).flatten(0, 1), "Batch and heads are one axis"),
        (lambda x, h: x.mT.reshape(x.size(0), h, x.size(1), -1), "Cut first, then swap"),
        (lambda x, h: x, "it has shape (2, 5, 12), not (2, 3, 5, 4)"),
    ],
    "merge_heads": [
        (lambda heads: heads.reshape(heads.size(0), heads.size(2), -1), "a token gets pieces of other tokens"),
        (lambda heads: heads.transpose(1, 2), "Now join the last two axes"),
        (lambda heads: heads.permute(0, 2, 3, 1).flatten(2), "interleaved"),
        (lambda heads: heads.sum(dim=1), "added up"),
        (lambda heads: heads.transpose(1, 2).view(heads.size(0), heads.size(2), -1), "use reshape or flatten"),
    ],
    "multi_head": [
        (loop_with(scale=lambda d, width: math.sqrt(width)), "width of all heads together"),
        (loop_with(scale=lambda d, width: 1), "no scale"),
        (loop_with(columns=lambda i, d, H: slice(i, None, H)), "every h-th column"),
        (loop_with(last=lambda joined, w_o: joined), "output projection is missing"),
        (lambda x, a, b, c, o, h: softmax_of(x @ a, x @ b) @ (x @ c) @ o, "one wide head"),
        (loop_with_the_wrong_softmax, "take it over the keys, dim=-1"),
        (view_at_both_ends, "Heads are made, and joined, by a reshape without a transpose"),
        (view_at_the_end, "Heads are joined by a reshape without a transpose"),
        (lambda x, a, b, c, o, h: multi_head_by_loop(x, a.T, b.T, c.T, o.T, h), "Try num_heads = 1 first"),
        (lambda x, a, b, c, o, h: multi_head_by_loop(x, a, b, c, o[:-1], h), "Write the shapes down"),
    ],
    "parameters": [
        (lambda d_model, h, kv, bias: 4 * d_model**2 + (4 * d_model if bias else 0), "right for num_kv_heads = num_heads only"),
        (lambda d_model, h, kv, bias: h * count_by_matrices(d_model, h, kv, bias), "once for each head"),
        (lambda d_model, h, kv, bias: count_by_matrices(d_model, h, kv, False), "biases are missing"),
        (lambda d_model, h, kv, bias: (1 + 2 * kv / h) * d_model**2, "it differs from the right values"),
        (lambda d_model, h, kv, bias: d_model, "you count 12"),
    ],
    "cache_bytes": [
        (lambda *sizes: bytes_by_product(*sizes) // 2, "holds both"),
        (lambda *sizes: bytes_by_product(*sizes) // sizes[-1], "Each takes bytes_per_number bytes"),
        (lambda n, b, s, d, h, kv, size: 2 * n * b * s * d * size, "without sharing"),
        (lambda n, b, s, d, h, kv, size: 2 * n * b * s * kv * d * size, "A head is not d_model wide"),
        (lambda *sizes: bytes_by_product(*sizes) * sizes[2], "not with its square"),
        (lambda *sizes: bytes_by_product(*sizes) // sizes[0], "one layer's cache"),
    ],
}


def answer_of(name, function):
    return counted(function) if name in ("parameters", "cache_bytes") else function


@pytest.mark.parametrize(("name", "answer"), pairs(WRONG))
def test_a_wrong_answer_gets_the_advice_that_fits(name, answer):
    function, words = answer
    assert_advice(verdict(EXERCISES[name], answer_of(name, function)), words)


def test_a_function_that_returns_text_instead_of_a_number_is_told_what_it_returned(capsys):
    check.parameters(lambda *sizes: "many")
    assert "is a str, not a tensor" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["split_heads", "merge_heads", "multi_head"])
def test_the_right_function_is_the_librarys(name):
    """The reference of each check against `MultiHeadAttention` with the same weights."""
    case = MULTI_HEAD.cases()[0]
    x, w_q, w_k, w_v, w_o, num_heads = case.values()
    layer = MultiHeadAttention(x.size(-1), num_heads, d_k=w_q.size(1) // num_heads, d_v=w_v.size(1) // num_heads)
    with torch.no_grad():
        for weight, new in zip((*layer.projections(), layer.out_proj.weight), (w_q, w_k, w_v, w_o), strict=True):
            weight.copy_(new.T)
        expected = layer(x)[0]
    split, merge = SPLIT_HEADS.right, MERGE_HEADS.right
    answers = {
        "multi_head": lambda: MULTI_HEAD.right(**case),
        "split_heads": lambda: (
            merge_by_cat(softmax_of(split(x @ w_q, num_heads), split(x @ w_k, num_heads)) @ split(x @ w_v, num_heads)) @ w_o
        ),
        "merge_heads": lambda: (
            merge(
                softmax_of(split_by_chunks(x @ w_q, num_heads), split_by_chunks(x @ w_k, num_heads))
                @ split_by_chunks(x @ w_v, num_heads)
            )
            @ w_o
        ),
    }
    torch.testing.assert_close(answers[name](), expected, rtol=1e-5, atol=1e-5)


def test_every_case_of_a_count_tells_something():
    """Dropping the first cases lets a wrong count through: so each exercise needs the variety that it has."""
    four_squares = PARAMETERS.mistakes[0].version
    agree = [same(run(four_squares, case), run(PARAMETERS.right, case)) for case in PARAMETERS.cases()]
    assert any(agree)
    assert not all(agree)
