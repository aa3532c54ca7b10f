"""The exercises of the chapter on masks: right answers of any style pass, wrong ones get the advice that fits."""

import math

import pytest
import torch

from lib.study.exercises import masks as check
from lib.study.exercises import verdict
from lib.study.exercises.masks.cached import CAUSAL_MASK
from lib.study.exercises.masks.heads import HEADS_MASK
from lib.study.exercises.masks.leak import LEAKS
from lib.study.exercises.masks.padding import PADDING_MASK
from lib.study.exercises.masks.row import MASKED_WEIGHTS
from lib.study.exercises.masks.truth import as_numbers
from lib.study.exercises.masks.window import WINDOW_MASK
from tests.lib.study.exercise_answers import assert_advice, pairs

EXERCISES = {
    "causal_mask": CAUSAL_MASK,
    "padding_mask": PADDING_MASK,
    "window_mask": WINDOW_MASK,
    "masked_weights": MASKED_WEIGHTS,
    "heads_mask": HEADS_MASK,
    "leaks": LEAKS,
}


def text_of(name, answer):
    return verdict(EXERCISES[name], answer if name == "masked_weights" else as_numbers(answer))


# ---- right answers, in several styles


def padding_by_loop(lengths, S):
    mask = torch.zeros(len(lengths), 1, 1, S, dtype=torch.bool)
    for b, length in enumerate(lengths):
        mask[b, ..., :length] = True
    return mask


def window_by_triangles(n, window):
    ones = torch.ones(n, n)
    return (ones.tril() * ones.triu(1 - window)).bool()


def weights_by_where(scores, mask, bias):
    scores = torch.where(mask, scores + bias, -math.inf)
    return torch.nan_to_num(scores.softmax(-1))


def weights_by_exp(scores, mask, bias):
    powers = (scores + bias).exp() * mask
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-12)


def heads_by_loop(ignore, num_heads, L):
    return torch.stack([~row.expand(L, -1) for row in ignore for _ in range(num_heads)])


def heads_by_view(ignore, num_heads, L):
    B, S = ignore.shape
    return ~ignore.view(B, 1, 1, S).expand(B, num_heads, L, S).reshape(B * num_heads, L, S)


def moved(attention, x, t):
    other = x.clone()
    other[:, t:] = torch.randn(x[:, t:].shape, generator=torch.Generator().manual_seed(0))
    return bool((attention(x) - attention(other))[:, :t].abs().max() > 1e-5)


def leaks_in_all_modes(attention, x):
    found = False
    for training in (True, False):
        attention.train(training)
        for gradients in (True, False):
            with torch.set_grad_enabled(gradients):
                found |= any(moved(attention, x, t) for t in range(1, x.size(1)))
    return found


def leaks_by_gradient_and_perturbation(attention, x):
    attention.eval()
    with torch.no_grad():
        if moved(attention, x, 3):
            return torch.tensor(True)
    for training in (True, False):
        attention.train(training)
        inputs = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(attention(inputs)[:, :3].sum(), inputs)
        if gradient[:, 3:].abs().max() > 1e-8:
            return torch.tensor(True)
    return torch.tensor(False)


RIGHT = {
    "causal_mask": [
        lambda L, S: torch.ones(L, S).tril(S - L).bool(),
        lambda L, S: torch.tensor([[j <= S - L + i for j in range(S)] for i in range(L)]),
        lambda L, S: ~torch.ones(S, S, dtype=torch.bool).triu(1)[-L:],
    ],
    "padding_mask": [padding_by_loop, lambda n, S: torch.arange(S) < n.view(-1, 1, 1, 1)],
    "window_mask": [window_by_triangles, lambda n, w: torch.ones(n, n).tril().bool() & ~torch.ones(n, n).tril(-w).bool()],
    "masked_weights": [weights_by_where, weights_by_exp],
    "heads_mask": [heads_by_loop, heads_by_view],
    "leaks": [leaks_in_all_modes, leaks_by_gradient_and_perturbation],
}


@pytest.mark.parametrize(("name", "answer"), pairs(RIGHT))
def test_a_right_answer_of_any_style_passes(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out == f"Right. {EXERCISES[name].why}\n"


# ---- wrong answers, written as a reader would, with words that the advice must hold


def behind(n):
    return torch.arange(n)[:, None] - torch.arange(n)


def leaks_in(*modes):
    def leaks(attention, x):
        for training, gradients in modes:
            attention.train(training)
            with torch.set_grad_enabled(gradients):
                if moved(attention, x, 3):
                    return True
        return False

    return leaks


WRONG = {
    "causal_mask": [
        (lambda L, S: torch.tril(torch.ones(L, S, dtype=torch.bool)), "key 0 alone"),
        (lambda L, S: ~torch.ones(L, S).tril(S - L).bool(), "inverted"),
        (lambda L, S: torch.ones(L, S).tril(S - L - 1).bool(), "does not see its own key"),
        (lambda L, S: torch.ones(L, S).tril(S - L + 1).bool(), "one step ahead"),
        (lambda L, S: torch.ones(L, S).triu(1) == 1, "what to hide"),
        (lambda L, S: torch.ones(S, S).tril().bool(), "a row for each key"),
        (lambda L, S: torch.ones(L, S).tril(S - L), "numbers would be added to the scores"),
        (lambda L, S: torch.ones(L, S).tril(S - L).long(), "the answer is boolean, got torch.int64"),
    ],
    "padding_mask": [
        (lambda n, S: torch.arange(S)[None] < n[:, None], "queries for sequences"),
        (lambda n, S: (torch.arange(S) < n[:, None])[:, None, :, None], "keys are the last axis"),
        (lambda n, S: (torch.arange(S) >= n[:, None])[:, None, None], "inverted"),
        (lambda n, S: (torch.arange(1, S + 1) <= n[:, None] + 1)[:, None, None], "positions count from 0"),
        (lambda n, S: (torch.arange(S) < n[:, None])[:, None], "one more, for the heads"),
        (lambda n, S: (torch.arange(S) < n[:, None])[None, None], "Batch comes first"),
        (lambda n, S: torch.arange(S) < n, "it raises RuntimeError"),
    ],
    "window_mask": [
        (lambda n, w: (behind(n) >= 0) & (behind(n) <= w), "One key too many"),
        (lambda n, w: behind(n) < w, "whole future"),
        (lambda n, w: behind(n).abs() < w, "both sides"),
        (lambda n, w: behind(n).abs() <= (w - 1) / 2, "Not yet"),
        (lambda n, w: ~((behind(n) >= 0) & (behind(n) < w)), "inverted"),
        (lambda n, w: (behind(n) > 0) & (behind(n) <= w), "query itself is left out"),
        (lambda n, w: torch.ones(n, n).tril().bool(), "far past"),
    ],
    "masked_weights": [
        (lambda s, m, b: (s + b).masked_fill(~m, -math.inf).softmax(-1), "0/0"),
        (lambda s, m, b: (s + b).masked_fill(~m, -1e9).softmax(-1), "shares its attention"),
        (lambda s, m, b: torch.nan_to_num(s.masked_fill(~m, -math.inf).softmax(-1)), "bias is missing"),
        (lambda s, m, b: torch.nan_to_num((s + b).masked_fill(m, -math.inf).softmax(-1)), "inverted"),
        (lambda s, m, b: (s + b + m.float()).softmax(-1), "hides nothing"),
        (lambda s, m, b: (s + b).softmax(-1).masked_fill(~m, 0), "after the softmax"),
        (lambda s, m, b: torch.nan_to_num((s * b).masked_fill(~m, -math.inf).softmax(-1)), "multiplied"),
    ],
    "heads_mask": [
        (lambda g, H, L: g[:, None, :].expand(-1, L, -1).repeat(H, 1, 1), "Both bugs"),
        (lambda g, H, L: (~g)[:, None, :].repeat(H, L, 1), "keeps the heads of a sequence together"),
        (lambda g, H, L: g[:, None, :].repeat(1, L, 1).repeat_interleave(H, 0), "go out as may attend"),
        (lambda g, H, L: (~g)[:, None, None].expand(-1, H, L, -1), "joined with the batch"),
        (lambda g, H, L: heads_by_loop(g, H, L).transpose(1, 2), "last axis is the keys"),
    ],
    "leaks": [
        (leaks_in((True, True)), "one mode alone"),
        (leaks_in((True, True), (False, True)), "torch.no_grad()"),
        (leaks_in((False, True)), "eval mode alone"),
        (leaks_in((False, False)), "attention.train()"),
        (lambda attention, x: True, "A sound attention fails"),
        (lambda attention, x: False, "Shapes say nothing"),
        (lambda attention, x: 0.5, "a float, not a tensor"),
    ],
}


@pytest.mark.parametrize(("name", "answer"), pairs(WRONG))
def test_a_wrong_answer_gets_the_advice_that_fits(name, answer):
    function, words = answer
    assert_advice(text_of(name, function), words)


# ---- mutants: right in outline, off in one detail

MUTANTS = {
    "causal_mask": [
        lambda L, S: torch.ones(L, S).tril(S - L).bool() & (torch.arange(S) > 0),
        lambda L, S: torch.ones(L, S).tril(max(S - L, 1)).bool(),
        lambda L, S: torch.ones(L, S).tril(S - L).bool()[None],
        lambda L, S: torch.ones(L, S).tril(S - L).bool().flip(0),
        lambda L, S: torch.ones(S, L).tril(S - L).bool(),
    ],
    "padding_mask": [
        lambda n, S: padding_by_loop(n.clamp(min=1), S),
        lambda n, S: padding_by_loop(n, S).flip(-1),
        lambda n, S: padding_by_loop(n, S).flip(0),
        lambda n, S: padding_by_loop(n, int(n.max())),
        lambda n, S: padding_by_loop(n, S)[:1].expand(len(n), 1, 1, S),
    ],
    "window_mask": [
        lambda n, w: window_by_triangles(n, max(w, 2)),
        lambda n, w: window_by_triangles(n, w) | (torch.arange(n) == 0),
        lambda n, w: window_by_triangles(n, w)[None],
        lambda n, w: window_by_triangles(n, w - 1),
    ],
    "masked_weights": [
        lambda s, m, b: weights_by_where(s, m, b.mT.mT[:1].expand_as(b)),
        lambda s, m, b: weights_by_where(s, m, -b),
        lambda s, m, b: weights_by_where(s, m.any(0, keepdim=True), b),
        lambda s, m, b: weights_by_where(s, m, b) * 1.001,
        lambda s, m, b: weights_by_where(s / 2, m, b),
        lambda s, m, b: weights_by_where(s, m, b).sum(1, keepdim=True),
    ],
    "heads_mask": [
        lambda g, H, L: heads_by_loop(g, H, L)[:, :1],
        lambda g, H, L: heads_by_loop(g, H, L).flip(0),
        lambda g, H, L: heads_by_loop(g[:1].expand_as(g), H, L),
    ],
    "leaks": [
        lambda attention, x: not leaks_in_all_modes(attention, x),
        lambda attention, x: leaks_in((True, True), (False, False))(attention, x * 0),
    ],
}


@pytest.mark.parametrize(("name", "mutant"), pairs(MUTANTS))
def test_an_answer_that_is_off_in_one_detail_does_not_pass(name, mutant):
    assert_advice(text_of(name, mutant))


# ---- not answered yet, and what a check must never do


def test_an_overwritten_input_is_told():
    def padding_mask(lengths, S):
        mask = padding_by_loop(lengths, S)
        lengths += 1
        return mask

    assert "overwrites its input lengths" in text_of("padding_mask", padding_mask)


def test_the_broken_function_of_the_chapter_has_both_bugs():
    def heads_mask(ignore, num_heads, L):
        mask = ignore[:, None, :].expand(-1, L, -1)
        return mask.repeat(num_heads, 1, 1)

    assert "Both bugs are still there" in text_of("heads_mask", heads_mask)
