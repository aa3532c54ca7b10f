"""The exercises on the decoder's inputs, the mask of cross-attention and the length penalty, as a reader would answer them."""

import pytest
import torch

from lib.generation import _norm
from lib.study.exercises import encoder_decoder as check
from lib.study.exercises import verdict
from lib.study.exercises.encoder_decoder.crossed import CROSSED
from lib.study.exercises.encoder_decoder.penalty import PENALTY
from lib.study.exercises.encoder_decoder.penalty import right as scores
from lib.study.exercises.encoder_decoder.shifted import SHIFTED
from lib.study.exercises.encoder_decoder.shifted import right as shifted
from lib.study.exercises.masks.truth import as_numbers
from lib.study.pronunciation import PHONEMES, Pair, collate
from lib.transformer import Transformer
from tests.lib.study.exercise_answers import assert_advice, pairs

EXERCISES = {"decoder_inputs": SHIFTED, "cross_mask": CROSSED, "beam_scores": PENALTY}


def inputs_in_place(labels, begin):
    inputs = torch.empty_like(labels)
    inputs[:, 0] = begin
    inputs[:, 1:] = labels[:, :-1]
    return inputs


def inputs_by_lists(labels, begin):
    return torch.tensor([[begin, *row[:-1]] for row in labels.tolist()])


def mask_by_loop(source, target, pad):
    mask = torch.zeros(len(source), 1, target.shape[1], source.shape[1], dtype=torch.bool)
    for b, row in enumerate(source):
        mask[b, ..., row != pad] = True
    return mask


def mask_by_repeat(source, target, pad):
    return source.ne(pad)[:, None, None, :].repeat(1, 1, target.shape[1], 1)


RIGHT = {
    "decoder_inputs": [inputs_in_place, inputs_by_lists],
    "cross_mask": [mask_by_loop, mask_by_repeat],
    "beam_scores": [
        lambda p, n, alpha: p / ((5.0 + n) ** alpha / 6**alpha),
        lambda p, n, alpha: torch.stack([p[:, k] / _norm(n[:, k], alpha) for k in range(p.shape[1])], dim=1),
    ],
}


@pytest.mark.parametrize(("name", "answer"), pairs(RIGHT))
def test_a_right_answer_of_any_style_passes(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out == f"Right. {EXERCISES[name].why}\n"


def square_mask(source, target, pad):
    """Works by accident where both are of one length."""
    return (target != pad)[:, None, None, :].repeat(1, 1, source.shape[1], 1)


WRONG = {
    "decoder_inputs": [
        (lambda labels, begin: labels.clone(), "reads its own answer"),
        (lambda labels, begin: torch.roll(labels, 1, 1), "round to the front"),
        (lambda labels, begin: torch.cat([torch.full((len(labels), 1), begin), labels], 1), "One column too many"),
        (lambda labels, begin: labels[:, :-1], "it has shape (3, 3), not (3, 4)"),
    ],
    "cross_mask": [
        (lambda source, target, pad: mask_by_loop(target, target, pad), "target's"),
        (square_mask, "target's"),
        (lambda source, target, pad: mask_by_loop(source, target, pad).tril(), "triangle"),
        (lambda source, target, pad: (source == pad)[:, None, None].repeat(1, 1, target.shape[1], 1), "inverted"),
        (lambda source, target, pad: source[:, None, None] != pad, "it has shape (3, 1, 1, 4), not (3, 1, 4, 4)"),
        (lambda source, target, pad: mask_by_loop(source, target, pad).float(), "the answer is boolean"),
    ],
    "beam_scores": [
        (lambda p, n, alpha: p / n, "Not yet"),
        (lambda p, n, alpha: p * ((n + 5) / 6).pow(alpha), "You multiply"),
        (lambda p, n, alpha: (p.T / ((n + 5) / 6)).T ** alpha, "Not yet"),
    ],
}


@pytest.mark.parametrize(("name", "answer"), pairs(WRONG))
def test_a_wrong_answer_gets_the_advice_that_fits(name, answer):
    function, words = answer
    assert_advice(verdict(EXERCISES[name], as_numbers(function) if name == "cross_mask" else function), words)


def test_the_right_answers_are_what_the_library_does():
    batch = collate([Pair([5, 6, 2], [9, 8, 7, 2]), Pair([5, 2], [9, 2])])
    assert torch.equal(shifted(batch.labels, PHONEMES.BEGIN)[0], batch.inputs[0])
    real = batch.source != 0
    derived = Transformer.memory_mask(real[:, None, None])  # (B, 1, 1, S)
    mask = CROSSED.right(batch.source, batch.labels, 0)
    assert torch.equal(mask, derived.expand(-1, -1, batch.labels.size(1), -1).int())
    log_probs, lengths = -torch.rand(2, 3), torch.tensor([[1, 2, 3], [9, 8, 7]])
    wanted = [[p / _norm(n, 0.6) for p, n in zip(*rows, strict=True)] for rows in zip(log_probs, lengths.tolist(), strict=True)]
    assert torch.allclose(scores(log_probs, lengths, 0.6), torch.tensor(wanted))
