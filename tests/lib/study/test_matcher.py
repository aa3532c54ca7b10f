"""Pairs of texts whose openings decide, and where the mark of the matcher looks."""

import torch

from lib.study import matcher
from lib.study.matcher import BODY, MARK, OPENING


def opening(text):
    return text[:, 1 : 1 + OPENING]


def test_retellings_keep_their_opening_and_change_some_of_their_body():
    found = matcher.pairs("dev", 0, 200)
    same = found.same.bool()
    assert same.double().mean() == 0.5
    assert torch.equal(opening(found.one[same]), opening(found.other[same]))
    changed = (found.one[same] != found.other[same])[:, 1 + OPENING :].double().mean()
    assert abs(changed - matcher.EDITED) < 0.05
    assert found.one.shape == (200, 1 + OPENING + BODY)
    assert (found.one[:, 0] == MARK).all()
    assert (found.other[:, 0] == MARK).all()


def test_pairs_that_are_not_the_same_open_alike_only_where_asked():
    shares = {}
    for kind in matcher.KINDS:
        found = matcher.pairs("dev", 1, 400, kind)
        other = ~found.same.bool()
        shares[kind] = (opening(found.one[other]) == opening(found.other[other])).all(dim=1).double().mean().item()
        assert (found.one[other] != found.other[other])[:, 1 + OPENING :].double().mean() > 0.8
    assert shares["other texts"] < 0.05
    assert shares["open alike"] == 1
    assert 0.4 < shares["both"] < 0.6


def test_pairs_are_the_same_at_each_call_and_parts_do_not_meet():
    one, again = (matcher.pairs("dev", 2, 10) for _ in range(2))
    assert torch.equal(one.other, again.other)
    train = {tuple(row) for row in matcher.texts("train").tolist()}
    assert not train & {tuple(row) for row in matcher.texts("test").tolist()}


def test_equal_texts_are_as_near_as_can_be_and_looks_sum_to_one():
    torch.manual_seed(0)
    model = matcher.Matcher()
    found = matcher.pairs("dev", 3, 6)
    assert torch.allclose(model(found.one, found.one), model.bias.expand(6))
    assert (model(found.one, found.other) <= model.bias).all()
    weights = matcher.looks(model, found.one)
    torch.testing.assert_close(weights.sum(-1), torch.ones(6))
    assert 0 < matcher.on_opening(model, found.one) < 1


def test_shares_called_right_are_counted_by_kind():
    class Yes(torch.nn.Module):
        def forward(self, one, other):
            return torch.ones(len(one))

    assert matcher.called_right(Yes(), matcher.pairs("dev", 4, 20)) == {"same": 1.0, "different": 0.0, "all": 0.5}


def test_a_few_steps_lower_the_loss():
    _, history = matcher.train("other texts", 0, steps=25)
    assert sum(history.losses[-5:]) < 0.9 * sum(history.losses[:5])
