"""Starts of attention, and how even its weights are."""

import pytest
import torch

from lib.study import uniform


@pytest.mark.parametrize(("weights", "value"), [([0.25] * 4, 1.0), ([1.0, 0, 0, 0], 0.0), ([0.5, 0.5, 0, 0], 0.5)])
def test_entropy_is_1_for_equal_weights_and_0_for_one_key(weights, value):
    assert uniform.entropy(torch.tensor([weights])).item() == pytest.approx(value, abs=1e-6)


def maps(start, seed=0):
    attention = uniform.build(start, seed).attention
    return attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight


def test_starts_are_what_their_names_say():
    q, k, v = maps("one matrix")
    assert torch.equal(q, k)
    assert torch.equal(q, v)
    assert q.unique().numel() > 100
    assert all(w.unique().numel() == 1 and w[0, 0] > 0 for w in maps("one number"))
    q, k, v = maps("zero")
    assert not q.any()
    assert not k.any()
    assert v.any()
    for w in maps("orthogonal"):
        torch.testing.assert_close(w @ w.T, torch.eye(64), atol=1e-5, rtol=0)
    assert all(abs(w.std() - uniform.SMALL) < 0.001 for w in maps("small"))
    assert all(0.07 < w.std() < 0.075 for w in maps("usual"))


def test_what_is_around_the_attention_is_the_same_from_every_start():
    models = [uniform.build(start, 3) for start in uniform.STARTS]
    for model in models[1:]:
        assert torch.equal(model.head.weight, models[0].head.weight)
        assert torch.equal(model.embeddings[0].weight, models[0].embeddings[0].weight)


def test_an_unknown_start_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="usual, small"):
        uniform.build("warm", 0)


def test_zeros_never_move_and_the_usual_start_does():
    for start, moves in (("zero", False), ("usual", True)):
        before = uniform.build(start, 0).attention.q_proj.weight.detach().clone()
        model, rows = uniform.train(start, 1e-2, 0, steps=20, every=10)
        assert torch.equal(model.attention.q_proj.weight, before) != moves
        assert [row["step"] for row in rows] == [10, 20]
        assert (rows[0]["entropy"] == 1) != moves
