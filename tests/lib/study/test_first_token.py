"""Chains and letters for causal models, and the weight on their first token."""

import pytest
import torch

from lib.study import first_token as study


def test_chains_repeat_behind_triggers_and_follow_the_table_elsewhere():
    tokens = study.chains(0, 200)
    assert (tokens[:, 0] == study.CHAIN_START).all()
    last, before, now = tokens[:, 2:-1], tokens[:, 1:-2], tokens[:, 3:]
    trigger = last <= max(study.TRIGGERS)
    assert (now == before)[trigger].all()
    likely = study.chain()[last, now] > 0.1
    assert likely[~trigger].double().mean() > 0.8
    torch.testing.assert_close(study.chain().sum(-1), torch.ones(study.TOKENS))
    assert torch.equal(tokens, study.chains(0, 200))


def test_windows_hold_the_mark_and_then_text():
    rows = study.windows("dev", 0, 3)
    assert rows.shape == (3, study.LENGTH)
    assert (rows[:, 0] == study.START).all()
    assert (rows[:, 1:] < study.START).all()
    text = "".join(study.LETTERS[i] for i in study.letters("dev").tolist())
    assert "".join(study.LETTERS[i] for i in rows[1, 1:].tolist()) in text


def test_equal_weights_give_the_first_token_its_share():
    model = study.build(study.TOKENS + 1, 0, **study.CHAIN_SIZES)
    with torch.no_grad():
        model.decoder.layers[0].self_attn.projections()[0].zero_()
    mass = study.mass_on_first(model, study.chains(1, 4))
    assert mass.shape == (1, 1)
    assert mass.item() == pytest.approx(study.by_chance(study.CHAIN_LENGTH), rel=1e-5)
    assert study.by_chance(4) == pytest.approx((1 / 3 + 1 / 4) / 2)
    who = study.behind_triggers(model, study.chains(1, 4))
    assert who["first, behind others"] == pytest.approx(who["before, behind others"], rel=1e-4)


def test_a_few_steps_lower_the_loss_of_both():
    for train in (study.train_on_letters, study.train_on_chains):
        _, history = train(0, steps=12)
        assert len(history.losses) == 12
        assert history.losses[-1] < history.losses[0] - 0.3
