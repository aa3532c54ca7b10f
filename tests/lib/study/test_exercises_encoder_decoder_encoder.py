"""The exercises on the mean of a text and on a decoder layer's parameters: right answers pass, wrong ones get advice."""

import pytest
import torch

from lib.layers import DecoderLayer
from lib.study.exercises import verdict
from lib.study.exercises.encoder_decoder.decoder_counts import DECODER_PARAMETERS
from lib.study.exercises.encoder_decoder.pooled import TEXT_MEAN
from lib.study.exercises.multi_head.counts import counted
from tests.lib.study.exercise_answers import assert_advice, pairs

EXERCISES = {"text_mean": TEXT_MEAN, "decoder_parameters": DECODER_PARAMETERS}


def text_of(name, answer):
    return verdict(EXERCISES[name], answer if name == "text_mean" else counted(answer))


# ---- right answers, in several styles


def mean_by_loop(x, lengths):
    return torch.stack([text[:length].mean(dim=0) for text, length in zip(x, lengths.tolist(), strict=True)])


def mean_by_product(x, lengths):
    share = (torch.arange(x.size(1)) < lengths[:, None]) / lengths[:, None]  # (B, L)
    return (share[:, None] @ x)[:, 0]


def count_by_parts(d_model, dim_feedforward, d_memory):
    to_model = d_model * d_model + d_model
    cross = 2 * to_model + 2 * (d_memory * d_model + d_model)
    return 4 * to_model + cross + dim_feedforward * (2 * d_model + 1) + d_model + 6 * d_model


def count_by_the_library(d_model, dim_feedforward, d_memory):
    layer = DecoderLayer(d_model, 2, dim_feedforward, d_memory=d_memory)
    return sum(parameter.numel() for parameter in layer.parameters())


RIGHT = {
    "text_mean": [mean_by_loop, mean_by_product],
    "decoder_parameters": [count_by_parts, count_by_the_library, lambda *sizes: float(count_by_parts(*sizes))],
}


@pytest.mark.parametrize(("name", "answer"), pairs(RIGHT))
def test_a_right_answer_of_any_style_passes(name, answer):
    assert text_of(name, answer) == f"Right. {EXERCISES[name].why}"


# ---- wrong answers, written as a reader would, with words that the advice must hold


def mean_of_all(x, lengths):
    return x.sum(1) / x.shape[1]


def mean_in_place(x, lengths):
    for b, length in enumerate(lengths):
        x[b, length:] = 0
    return x.sum(1) / lengths[:, None]


def without_memory(d_model, dim_feedforward, d_memory):
    return count_by_parts(d_model, dim_feedforward, d_model)


def with_two_norms(d_model, dim_feedforward, d_memory):
    return count_by_parts(d_model, dim_feedforward, d_memory) - 2 * d_model


WRONG = {
    "text_mean": [
        (mean_of_all, "The padding is in the mean"),
        (mean_in_place, "overwrites its input x"),
        (lambda x, n: (x * (torch.arange(x.size(1)) < n[:, None])[..., None]).mean(1), "divided by L"),
        (lambda x, n: mean_by_loop(x, (n + 1).clamp(max=x.size(1))), "One token of padding is in the mean"),
        (lambda x, n: torch.stack([text[k - 1] for text, k in zip(x, n, strict=True)]), "last true token alone"),
        (lambda x, n: mean_by_loop(x, n)[:, None], "not (3, 4)"),
        (lambda x, n: x * n, "it raises RuntimeError"),
    ],
    "decoder_parameters": [
        (without_memory, "W_k and W_v of cross-attention read the memory"),
        (with_two_norms, "One norm is missing"),
        (lambda d, f, m: 4 * (d * d + d) + 2 * d * f + f + d + 4 * d, "That is an encoder layer"),
        (lambda d, f, m: 6 * d * d + 2 * d * m + 2 * d * f + 6 * d, "The biases are missing"),
        (lambda d, f, m: count_by_parts(d, f, m) + 1, "1,176 together"),
    ],
}


@pytest.mark.parametrize(("name", "answer"), pairs(WRONG))
def test_a_wrong_answer_gets_the_advice_that_fits(name, answer):
    function, words = answer
    assert_advice(text_of(name, function), words, begins="Not yet. ")  # one answer overwrites its input
