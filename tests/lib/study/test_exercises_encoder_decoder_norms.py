"""The exercises on layer norm and on the order of the sub-layers: right answers of any style pass, wrong ones get advice."""

import pytest
import torch
import torch.nn.functional as F

from lib.layers import EncoderLayer
from lib.study.exercises import run, same, verdict
from lib.study.exercises.encoder_decoder.normed import LAYER_NORM
from lib.study.exercises.encoder_decoder.order import SUB_LAYERS
from tests.lib.study.exercise_answers import assert_advice, known_mistakes, margin, pairs

EXERCISES = {"layer_norm": LAYER_NORM, "sub_layers": SUB_LAYERS}


# ---- right answers, in several styles


def norm_by_loop(x, weight, bias, eps):
    out = torch.empty_like(x)
    for b, sequence in enumerate(x):
        for i, token in enumerate(sequence):
            centered = token - token.sum() / len(token)
            out[b, i] = centered / (centered.square().sum() / len(token) + eps) ** 0.5
    return out * weight + bias


def layer_in_two_cases(x, attention, feed_forward, norm1, norm2, norm_first):
    if norm_first:
        x = x + attention(norm1(x))
        return x + feed_forward(norm2(x))
    x = norm1(x + attention(x))
    return norm2(x + feed_forward(x))


def layer_by_loop(x, attention, feed_forward, norm1, norm2, norm_first):
    for f, norm in ((attention, norm1), (feed_forward, norm2)):
        x = f(norm(x)) + x if norm_first else norm(f(x) + x)
    return x


RIGHT = {
    "layer_norm": [norm_by_loop, lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, eps)],
    "sub_layers": [layer_in_two_cases, layer_by_loop],
}


@pytest.mark.parametrize(("name", "answer"), pairs(RIGHT))
def test_a_right_answer_of_any_style_passes(name, answer):
    assert verdict(EXERCISES[name], answer) == f"Right. {EXERCISES[name].why}"


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_right_order_is_the_library_s(norm_first):
    torch.manual_seed(0)
    layer = EncoderLayer(8, 2, 16, dropout=0.0, norm_first=norm_first)
    for norm in (layer.norm1, layer.norm2):
        torch.nn.init.normal_(norm.weight)
    x = torch.randn(2, 5, 8)
    parts = lambda x: layer.self_attn(x)[0], layer.feed_forward, layer.norm1, layer.norm2
    assert torch.allclose(SUB_LAYERS.right(x, *parts, norm_first), layer(x), atol=1e-6)


# ---- wrong answers, written as a reader would, with words that the advice must hold


def centered(x, dim=-1):
    return x - x.mean(dim, keepdim=True)


def swapped(x, a, f, n1, n2, first):
    return layer_by_loop(x, a, f, n1, n2, not first)


def around_both(x, a, f, n1, n2, first):
    return x + f(n2(a(n1(x)))) if first else n2(f(n1(a(x))) + x)


WRONG = {
    "layer_norm": [
        (lambda x, w, b, eps: centered(x) / (x.var(-1, keepdim=True) + eps).sqrt() * w + b, "correction=0"),
        (lambda x, w, b, eps: centered(x) / (x.std(-1, keepdim=True) + eps) * w + b, "Two things"),
        (lambda x, w, b, eps: centered(x, (0, 1)) / (x.var((0, 1), correction=0) + eps).sqrt() * w + b, "batch norm"),
        (lambda x, w, b, eps: F.rms_norm(x, x.shape[-1:], w, eps) + b, "RMS norm"),
        (lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], eps=eps), "Weight and bias are missing"),
        (lambda x, w, b, eps: F.layer_norm(x, x.shape[1:], eps=eps) * w + b, "Each token has its own"),
        (lambda x, w, b, eps: (x - x.mean(-1)) / (x.var(-1) + eps).sqrt() * w + b, "keepdim=True"),
        (lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b), "eps has no effect"),
    ],
    "sub_layers": [
        (swapped, "swapped"),
        (around_both, "Each sub-layer has its own"),
        (lambda x, a, f, n1, n2, first: layer_by_loop(x, a, f, n1, n2, False), "both cases are post-norm"),
        (lambda x, a, f, n1, n2, first: f(n2(a(n1(x)))) if first else n2(f(n1(a(x)))), "residual is missing"),
        (lambda x, a, f, n1, n2, first: layer_in_two_cases(x, a, f, n1, n1, first), "norm of its own"),
        (lambda x, a, f, n1, n2, first: a(n1(x)) + f(n2(x)) + x if first else layer_by_loop(x, a, f, n1, n2, first), "reads"),
        (lambda x, a, f, n1, n2: x, "it raises TypeError"),
    ],
}


@pytest.mark.parametrize(("name", "answer"), pairs(WRONG))
def test_a_wrong_answer_gets_the_advice_that_fits(name, answer):
    function, words = answer
    text = verdict(EXERCISES[name], function)
    assert text.startswith("Not yet. With x (")
    assert words in text
    assert " at 0x" not in text


@pytest.mark.parametrize(("name", "mistake"), known_mistakes(EXERCISES))
def test_every_known_wrong_version_is_recognized_as_itself(name, mistake):
    assert verdict(EXERCISES[name], mistake.version).endswith(f" {mistake.advice}")


@pytest.mark.parametrize("name", EXERCISES)
def test_no_known_wrong_version_is_near_the_right_one_or_another(name):
    exercise = EXERCISES[name]
    versions = [exercise.right, *(mistake.version for mistake in exercise.mistakes)]
    for i, one in enumerate(versions):
        for other in versions[:i]:
            assert margin(exercise, one, other) > 1e-2


# ---- mutants: right in outline, off in one detail

MUTANTS = {
    "layer_norm": [
        lambda x, w, b, eps: norm_by_loop(x, w, b, eps) * 1.001,
        lambda x, w, b, eps: norm_by_loop(x, w, b, eps / 2),
        lambda x, w, b, eps: norm_by_loop(x, w, b, eps)[:, :1].expand_as(x),
        lambda x, w, b, eps: norm_by_loop(x, b, w, eps),
    ],
    "sub_layers": [
        lambda x, a, f, n1, n2, first: layer_by_loop(x, a, f, n1, n2, first) + 0.001,
        lambda x, a, f, n1, n2, first: n2(layer_by_loop(x, a, f, n1, n2, first)),
        lambda x, a, f, n1, n2, first: layer_by_loop(n1(x), a, f, n1, n2, first),
        lambda x, a, f, n1, n2, first: layer_by_loop(x, lambda x: a(x) / 2, f, n1, n2, first),
        lambda x, a, f, n1, n2, first: layer_by_loop(x, a, f, n1, n2, first) if first else x + a(x),
    ],
}


@pytest.mark.parametrize(("name", "mutant"), pairs(MUTANTS))
def test_an_answer_that_is_off_in_one_detail_does_not_pass(name, mutant):
    assert_advice(verdict(EXERCISES[name], mutant))


# ---- not answered yet, and what a check must never do


@pytest.mark.parametrize("name", EXERCISES)
@pytest.mark.parametrize("answer", [None, ..., lambda *args: ...])
def test_an_exercise_without_an_answer_prints_the_hint_alone(name, answer):
    assert verdict(EXERCISES[name], answer) == f"Not answered yet. {EXERCISES[name].hint}"


@pytest.mark.parametrize("name", EXERCISES)
def test_the_cases_are_always_the_same_and_leave_the_global_generator_alone(name):
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, second = ([run(EXERCISES[name].right, case) for case in EXERCISES[name].cases()] for _ in range(2))
    assert all(map(same, first, second))
    assert torch.equal(torch.get_rng_state(), state)


def test_an_overwritten_input_is_told():
    def layer(x, attention, feed_forward, norm1, norm2, norm_first):
        x += attention(x)
        return x

    assert "overwrites its input x" in verdict(SUB_LAYERS, layer)
