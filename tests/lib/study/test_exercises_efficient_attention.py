"""The exercises of the chapter on efficient attention: right answers of any style pass, wrong ones get the advice that fits."""

import math

import pytest
import torch

from lib import masks
from lib.study.exercises import efficient_attention as check
from lib.study.exercises import verdict
from lib.study.exercises.efficient_attention.longest import LONGEST_TEXT
from lib.study.exercises.efficient_attention.merged import MERGE
from lib.study.exercises.efficient_attention.recurrence import RECURRENCE
from lib.study.exercises.efficient_attention.stretch import STRETCH_MASK
from lib.study.exercises.masks.truth import as_numbers
from lib.study.exercises.multi_head.counts import counted
from tests.lib.study.exercise_answers import assert_advice, pairs

EXERCISES = {
    "merge": MERGE,
    "stretch_mask": STRETCH_MASK,
    "linear_recurrence": RECURRENCE,
    "longest_text": LONGEST_TEXT,
}
WRAPPED = {"stretch_mask": as_numbers, "longest_text": counted}


def text_of(name, answer):
    return verdict(EXERCISES[name], WRAPPED.get(name, lambda x: x)(answer))


# ---- right answers, in several styles


def merge_by_logs(m1, l1, o1, m2, l2, o2):
    m = torch.where(m1 > m2, m1, m2)
    whole = m + torch.logaddexp(m1 - m + l1.log(), m2 - m + l2.log())
    return m, (whole - m).exp(), o1 * (m1 - m).exp() + o2 * (m2 - m).exp()


def merge_in_a_list(m1, l1, o1, m2, l2, o2):
    m = torch.cat([m1, m2], -1).amax(-1, keepdim=True)
    a, b = torch.exp(m1 - m), torch.exp(m2 - m)
    return [m, a * l1 + b * l2, a * o1 + b * o2]


def stretch_by_loop(block, window):
    return torch.tensor([[i <= j <= i + window - 1 for j in range(window - 1 + block)] for i in range(block)])


def stretch_by_triangles(block, window):
    ones = torch.ones(block, window - 1 + block)
    return (ones.triu() * ones.tril(window - 1)).bool()


def recurrence_by_loop(q, k, v):
    S, z, outputs = torch.zeros(k.shape[1], v.shape[1]), torch.zeros(k.shape[1]), []
    for i in range(len(q)):
        S = S + torch.outer(k[i], v[i])
        z = z + k[i]
        outputs.append((q[i] @ S) / (q[i] @ z))
    return torch.stack(outputs)


def recurrence_by_sums(q, k, v):
    states = (k[:, :, None] * v[:, None]).cumsum(0)
    return torch.einsum("nf,nfd->nd", q, states) / (q * k.cumsum(0)).sum(-1, keepdim=True)


def longest_by_division(memory, layers, batch, d_model, heads, kv_heads, size):
    return memory // (2 * layers * batch * kv_heads * (d_model // heads) * size)


RIGHT = {
    "merge": [merge_by_logs, merge_in_a_list],
    "stretch_mask": [stretch_by_loop, stretch_by_triangles],
    "linear_recurrence": [recurrence_by_loop, recurrence_by_sums],
    "longest_text": [longest_by_division, lambda *x: math.floor(x[0] / (2 * x[1] * x[2] * x[3] * x[5] / x[4] * x[6]))],
}


@pytest.mark.parametrize(("name", "answer"), pairs(RIGHT))
def test_a_right_answer_of_any_style_passes(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out == f"Right. {EXERCISES[name].why}\n"


# ---- wrong answers, written as a reader would, with words that the advice must hold


def rescaled(first, second):
    return lambda m1, l1, o1, m2, l2, o2: (
        torch.maximum(m1, m2),
        l1 * first(m1, m2) + l2 * second(m1, m2),
        o1 * first(m1, m2) + o2 * second(m1, m2),
    )


def merge_at_zero(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2)
    return m, (l1 * m1.exp() + l2 * m2.exp()) / m.exp(), (o1 * m1.exp() + o2 * m2.exp()) / m.exp()


def merge_by_one(m1, l1, o1, m2, l2, o2):
    m, factor = torch.maximum(m1, m2), torch.exp(m2 - m1)
    return m, (l1 + factor * l2) * torch.exp(m1 - m), (o1 + factor * o2) * torch.exp(m1 - m)


def read_before_adding(q, k, v):
    S, z, outputs = torch.zeros(k.shape[1], v.shape[1]), torch.zeros(k.shape[1]), []
    for i in range(len(q)):
        outputs.append((q[i] @ S) / (q[i] @ z))
        S, z = S + torch.outer(k[i], v[i]), z + k[i]
    return torch.stack(outputs)


def never_divided(q, k, v):
    return (q[:, :, None] * (k[:, :, None] * v[:, None]).cumsum(0)).sum(1)


def place(block, window):
    return torch.arange(block)[:, None] + window - 1 - torch.arange(window - 1 + block)


WRONG = {
    "merge": [
        (lambda m1, l1, o1, m2, l2, o2: (torch.maximum(m1, m2), l1 + l2, o1 + o2), "added as they are"),
        (rescaled(lambda a, b: (a - b).exp(), lambda a, b: 1.0), "Not yet"),
        (rescaled(lambda a, b: (torch.maximum(a, b) - a).exp(), lambda a, b: (torch.maximum(a, b) - b).exp()), "upside down"),
        (rescaled(lambda a, b: a.exp(), lambda a, b: b.exp()), "measured against 0"),
        (merge_at_zero, "overflows"),
        (lambda *x: merge_by_one(*x), "without keys"),
        (lambda *x: merge_by_one(*x[3:], *x[:3]), "without keys"),
        (lambda m1, l1, o1, m2, l2, o2: torch.maximum(m1, m2), "returns a Tensor, not the 3 tensors m, l, o"),
    ],
    "stretch_mask": [
        (lambda b, w: place(b, w) >= 0, "see more than `window` keys"),
        (lambda b, w: place(b, w) < w, "come after them"),
        (lambda b, w: (place(b, w) >= 0) & (place(b, w) <= w), "One key too many"),
        (lambda b, w: (place(b, w) > 0) & (place(b, w) < w), "itself is left out"),
        (lambda b, w: torch.ones(b, b + w - 1).tril().bool(), "as if query 0 stood at key 0"),
        (lambda b, w: torch.ones(b, b).tril().bool() & (torch.ones(b, b).triu(1 - w) > 0), "the block sees itself alone"),
        (lambda b, w: ~stretch_by_loop(b, w), "inverted"),
        (lambda b, w: place(b, w).abs() < w, "both sides"),
        (lambda b, w: torch.ones(b, b + w - 1) > 0, "Everything is allowed"),
    ],
    "linear_recurrence": [
        (read_before_adding, "Add first"),
        (never_divided, "division is missing"),
        (lambda q, k, v: (q @ (k.T @ v)) / (q @ k.sum(0))[:, None], "Every row sees all keys"),
        (lambda q, k, v: never_divided(q, k, v) / (q @ k.sum(0))[:, None], "looks at the future"),
        (lambda q, k, v: never_divided(q, k, v) / torch.arange(1, len(q) + 1)[:, None], "number of tokens"),
        (lambda q, k, v: never_divided(q, k, v) / k.cumsum(0).sum(1)[:, None], "its own sum of weights"),
        (lambda q, k, v: v * 1.0, "the last token alone"),
    ],
    "longest_text": [
        (lambda m, N, B, D, H, G, b: m / (2 * N * B * G * D // H * b), "round down"),
        (lambda m, N, B, D, H, G, b: -(-m // (2 * N * B * G * (D // H) * b)), "does not fit"),
        (lambda m, N, B, D, H, G, b: m // (2 * N * B * D * b), "without sharing"),
        (lambda m, N, B, D, H, G, b: m // (N * B * G * (D // H) * b), "takes both"),
        (lambda m, N, B, D, H, G, b: m // (2 * N * G * (D // H) * b), "share the memory"),
        (lambda m, N, B, D, H, G, b: m // (2 * B * G * (D // H) * b), "Every layer"),
        (lambda m, N, B, D, H, G, b: m // (2 * N * B * G * D * b), "not d_model wide"),
        (lambda m, N, B, D, H, G, b: m // (2 * N * B * G * (D // H)), "numbers as bytes"),
    ],
}


@pytest.mark.parametrize(("name", "answer"), pairs(WRONG))
def test_a_wrong_answer_gets_the_advice_that_fits(name, answer):
    function, words = answer
    assert_advice(text_of(name, function), words)


# ---- mutants: right in outline, off in one detail

MUTANTS = {
    "merge": [
        lambda *x: merge_in_a_list(*x)[::-1],
        lambda *x: (merge_in_a_list(*x)[0], *merge_in_a_list(*x)[:2]),
        lambda *x: [1.001 * part for part in merge_in_a_list(*x)],
        lambda m1, l1, o1, m2, l2, o2: merge_in_a_list(m1, l1, o1, m1, l2, o2),
    ],
    "stretch_mask": [
        lambda b, w: stretch_by_loop(b, w).flip(0),
        lambda b, w: stretch_by_loop(b, max(w - 1, 1)),
        lambda b, w: stretch_by_loop(b, w)[None],
        lambda b, w: stretch_by_loop(b, w).T,
    ],
    "linear_recurrence": [
        lambda q, k, v: recurrence_by_loop(k, q, v),
        lambda q, k, v: recurrence_by_loop(q, k, v).flip(0),
        lambda q, k, v: recurrence_by_loop(q, k, v)[:, None],
        lambda q, k, v: recurrence_by_loop(q**2, k, v),
    ],
    "longest_text": [
        lambda *x: longest_by_division(*x) - 1,
        lambda *x: longest_by_division(*x[:4], x[5], x[4], x[6]),
        lambda *x: longest_by_division(8 * x[0], *x[1:]),
    ],
}


@pytest.mark.parametrize(("name", "mutant"), pairs(MUTANTS))
def test_an_answer_that_is_off_in_one_detail_does_not_pass(name, mutant):
    assert_advice(text_of(name, mutant))


def test_an_overwritten_input_is_told():
    def merge(m1, l1, o1, m2, l2, o2):
        m = torch.maximum(m1, m2)
        l1 *= (m1 - m).exp()
        return m, l1 + l2 * (m2 - m).exp(), o1 * (m1 - m).exp() + o2 * (m2 - m).exp()

    assert "overwrites its input l1" in text_of("merge", merge)


@pytest.mark.parametrize(("block", "window"), [(4, 3), (7, 1), (2, 9)])
def test_the_mask_of_a_stretch_is_a_piece_of_the_window_mask(block, window):
    whole = masks.sliding_window(window - 1 + block, window)
    assert torch.equal(stretch_by_loop(block, window), whole[window - 1 :])
