"""The exercises of the chapter on pitfalls: right answers of any style pass, wrong ones get the advice that fits."""

import math

import pytest
import torch
import torch.nn.functional as F

from lib import masks
from lib.study.exercises import pitfalls as check
from lib.study.story import DropsAlways, PlainAttention, ScaledUp, ScrambledHeads
from tests.lib.study.exercise_answers import assert_advice, pairs

# ---- right answers, in several styles


def join_by_loop(heads):
    B, H, L, _ = heads.shape
    return torch.stack([torch.stack([torch.cat([heads[b, h, t] for h in range(H)]) for t in range(L)]) for b in range(B)])


def allow_by_numbers(L, S, keep, training):
    behind = torch.arange(S - L, S)[:, None] - torch.arange(S)
    allowed = behind >= 0
    return allowed if keep is None else (allowed[None, None] & keep.unsqueeze(1).unsqueeze(1)) | (behind == 0)


def allow_by_library(L, S, keep, training):
    if keep is None:
        return masks.causal(L, S)
    return masks.causal(L, S) & (keep[:, None, None] | torch.eye(S, dtype=torch.bool)[S - L :])


def attend_by_torch(q, k, v, p, training):
    return F.scaled_dot_product_attention(q, k, v, dropout_p=p if training else 0.0)


def attend_by_hand(q, k, v, p, training):
    weights = ((q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)).softmax(-1)
    return F.dropout(weights, p=p, training=training) @ v


def attend_with_own_random_numbers(q, k, v, p, training):
    weights = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
    if training and p < 1:
        weights = weights * (torch.rand(weights.shape) >= p) / (1 - p)
    return weights @ v


def attend_by_bernoulli(q, k, v, p, training):
    weights = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
    kept = torch.empty_like(weights).bernoulli_(1 - p) / (1 - p)
    return (weights * kept if training else weights) @ v


def first_by_loop(weights):
    B, H, L, _ = weights.shape
    got = torch.tensor([sum(weights[b, h, i, 0] for b in range(B) for i in range(1, L)) / B for h in range(H)])
    return got / sum(1 / (i + 1) for i in range(1, L))


RIGHT = {
    "join": [join_by_loop, lambda heads: torch.cat(heads.unbind(1), dim=-1), PlainAttention(8, 2).join],
    "allow": [allow_by_numbers, allow_by_library],
    "attend": [attend_by_torch, attend_by_hand, attend_with_own_random_numbers, attend_by_bernoulli],
    "first": [first_by_loop],
}


@pytest.mark.parametrize(("name", "answer"), pairs(RIGHT))
def test_a_right_answer_of_any_style_passes(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out.startswith("Right. ")


# ---- wrong answers, written in other words than those that the check knows


def allow_as_in_the_chapter(L, S, keep, training):
    allowed = torch.ones(L, S, dtype=torch.bool)
    if training:
        allowed = allowed.tril()
    return allowed


def allow_without_step(L, S, keep, training):
    allowed = torch.ones(L, S).tril() > 0
    return allowed if keep is None else allowed & keep[:, None, None, :]


def allow_in_training(L, S, keep, training):
    allowed = masks.causal(L, S) if training else torch.ones(L, S, dtype=torch.bool)
    return allowed if keep is None else allowed & keep[:, None, None, :]


def allow_with_empty_rows(L, S, keep, training):
    return masks.causal(L, S) if keep is None else masks.causal(L, S) & keep[:, None, None, :]


def allow_hiding_queries(L, S, keep, training):
    return masks.causal(L, S) if keep is None else masks.causal(L, S) & keep[:, None, :, None]


def plain(kind):
    """The function of exercise 3 made of one of the story's modules."""
    module = kind(8, 2)

    def attend(q, k, v, p, training):
        module.train(training).dropout = p
        return module.drop(module.score(q, k).softmax(-1)) @ v

    return attend


def weights_of(q, k):
    return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)


def drops_a_word(q, k, v, p, training):
    """A key is dropped for all queries at once."""
    kept = torch.rand(*k.shape[:2], 1, k.size(2)) >= p
    return (weights_of(q, k) * kept / (1 - p) if training and p else weights_of(q, k)) @ v


def drops_a_row(q, k, v, p, training):
    kept = torch.rand(*k.shape[:3], 1) >= p
    return (weights_of(q, k) * kept / (1 - p) if training and p else weights_of(q, k)) @ v


def drops_without_scale(q, k, v, p, training):
    kept = torch.empty_like(weights_of(q, k)).bernoulli_(1 - p)
    return (weights_of(q, k) * kept if training else weights_of(q, k)) @ v


def drops_and_scales_up(q, k, v, p, training):
    return F.dropout((q @ k.mT * q.size(-1) ** 0.5).softmax(-1), p) @ v


WRONG = {
    "join": [
        (ScrambledHeads(8, 2).join, "still merged without a transpose"),
        (lambda heads: heads.permute(0, 2, 3, 1).reshape(heads.size(0), heads.size(2), -1), "interleaved"),
        (lambda heads: torch.stack([h.flatten(1) for h in heads.transpose(1, 2).transpose(2, 3)]), "differs"),
        (lambda heads: heads.permute(0, 2, 1, 3), "Merge the last two"),
    ],
    "allow": [
        (allow_as_in_the_chapter, "Three bugs are left. The future is still hidden in training only"),
        (allow_without_step, "Two bugs are left. With more keys than queries"),
        (allow_in_training, "Two bugs are left. The future is still hidden in training only"),
        (lambda L, S, keep, training: masks.causal(L, S), "One bug is left. Padding is still read"),
        (allow_with_empty_rows, "One bug is left. Behind padding in front, some queries have no key left"),
        (allow_hiding_queries, "`keep` hides queries there"),
        (lambda L, S, keep, training: ~allow_by_library(L, S, keep, training), "differs"),
    ],
    "attend": [
        (drops_and_scales_up, "Both bugs are still there"),
        (plain(ScaledUp), "The dropout is mended. The scores are still multiplied"),
        (plain(DropsAlways), "The scale is mended. Dropout still falls in eval"),
        (lambda q, k, v, p, training: F.scaled_dot_product_attention(q, k, v), "gone in training too"),
        (lambda q, k, v, p, training: F.dropout(weights_of(q, k) @ v, p, training), "You drop numbers of the output"),
        (lambda q, k, v, p, training: weights_of(q, k) @ F.dropout(v, p, training), "You drop numbers of v"),
        (drops_without_scale, "must grow by 1 / (1 − p)"),
        (drops_a_word, "is 0 with probability p, by itself"),
        (drops_a_row, "is 0 with probability p, by itself"),
    ],
    "first": [
        (lambda weights: weights[:, :, 1:, 0].mean((0, 2)), "the weight itself"),
        (lambda weights: weights[:, :, 1:, 0].mean((0, 2)) / (1 / weights.size(-1)), "as if each query saw all keys"),
    ],
}


@pytest.mark.parametrize(("name", "answer"), pairs(WRONG))
def test_a_wrong_answer_gets_the_advice_that_fits(name, answer, capsys):
    function, words = answer
    getattr(check, name)(function)
    assert_advice(capsys.readouterr().out.rstrip(), words)


def test_equal_weights_of_the_next_step_give_one(capsys):
    equal = (masks.causal(6) / torch.arange(1, 7)[:, None])[None, None]
    torch.testing.assert_close(first_by_loop(equal), torch.ones(1))


def test_dropout_in_an_answer_leaves_the_readers_random_numbers_alone(capsys):
    torch.manual_seed(5)
    state = torch.get_rng_state()
    check.attend(drops_and_scales_up)
    assert torch.equal(torch.get_rng_state(), state)
    assert "Both bugs" in capsys.readouterr().out
