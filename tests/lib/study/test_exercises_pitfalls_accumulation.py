"""The exercise on accumulation: right answers of any style pass, wrong ones get the advice that fits."""

import pytest
import torch

from lib.study.exercises import pitfalls as check
from lib.study.exercises import verdict
from lib.study.exercises.pitfalls.accumulation import ACCUMULATED
from tests.lib.study.exercise_answers import assert_advice


def by_loop(gradients, tokens, size):
    steps, total, seen = [], torch.zeros(gradients.size(1)), 0
    for i, (gradient, count) in enumerate(zip(gradients, tokens, strict=True)):
        total, seen = total + count * gradient, seen + count
        if (i + 1) % size == 0 or i + 1 == len(gradients):
            steps.append(total / seen)
            total, seen = torch.zeros_like(total), 0
    return torch.stack(steps)


def by_split(gradients, tokens, size):
    weighted = (gradients * tokens[:, None]).split(size)
    return torch.stack([part.sum(0) for part in weighted]) / torch.stack([n.sum() for n in tokens.split(size)])[:, None]


def loop(step, weight=lambda n: n, divide=lambda total, tokens, group, size: total / tokens, zero=True):
    """A training loop as a reader would write it: when to step, how to weigh, what to divide by, whether to reset."""

    def accumulated(gradients, tokens, size):
        steps, total, seen, group = [], torch.zeros(gradients.size(1)), 0, 0
        for i, (gradient, count) in enumerate(zip(gradients, tokens, strict=True)):
            total, seen, group = total + weight(count) * gradient, seen + count, group + 1
            if step(i, size, len(gradients)):
                steps.append(divide(total, seen, group, size))
                if zero:
                    total, seen, group = torch.zeros_like(total), 0, 0
        return torch.stack(steps) if steps else gradients[:0]

    return accumulated


def on_time(i, size, N):
    return (i + 1) % size == 0 or i + 1 == N


@pytest.mark.parametrize("answer", [by_loop, by_split, loop(on_time)])
def test_a_right_answer_of_any_style_passes(answer, capsys):
    check.accumulated(answer)
    assert capsys.readouterr().out == f"Right. {ACCUMULATED.why}\n"


WRONG = [
    (loop(on_time, lambda n: 1, lambda total, tokens, group, size: total / group), "mean of the means"),
    (loop(on_time, lambda n: 1, lambda total, tokens, group, size: total / size), "counts no tokens"),
    (loop(on_time, lambda n: 1, lambda total, tokens, group, size: total), "only added up: each is a mean already"),
    (loop(on_time, divide=lambda total, tokens, group, size: total / group), "not by its number of micro-batches"),
    (loop(on_time, divide=lambda total, tokens, group, size: total / size), "not by `size`"),
    (loop(on_time, divide=lambda total, tokens, group, size: total), "divide by the tokens of the group"),
    (loop(lambda i, size, N: i % size == 0), "after 1, size + 1"),
    (loop(lambda i, size, N: (i + 1) % size == 0), "are dropped"),
    (lambda g, n, size: by_loop(g, n, size).cumsum(0), "zero_grad()"),
    (loop(on_time, divide=lambda total, tokens, group, size: total / 34), "Not yet"),
    (loop(on_time, lambda n: n**2), "a token of the second must count"),
    (lambda g, n, size: by_loop(g, n, size)[0], "has shape (4,), not (3, 4)"),
]


@pytest.mark.parametrize(("answer", "words"), WRONG)
def test_a_wrong_answer_gets_the_advice_that_fits(answer, words):
    assert_advice(verdict(ACCUMULATED, answer), words)


@pytest.mark.parametrize(
    "mutant",
    [
        lambda g, n, size: by_loop(g, n, size + 1),
        lambda g, n, size: by_loop(g, n.flip(0), size),
        lambda g, n, size: by_loop(g, n + 1, size),
        lambda g, n, size: by_loop(g, n, size).flip(0),
        lambda g, n, size: 1.001 * by_loop(g, n, size),
    ],
)
def test_an_answer_that_is_off_in_one_detail_does_not_pass(mutant):
    assert_advice(verdict(ACCUMULATED, mutant))
