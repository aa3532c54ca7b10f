"""The head set by hand does what it is said to do: a blend by weight, and the answers that a linear map can read from it."""

import pytest
import torch

from lib.study import heads_by_hand, heads_tasks
from lib.study.classifiers import trainable


@pytest.fixture(scope="module")
def net():
    return heads_by_hand.one_head()


@pytest.fixture(scope="module")
def tables():
    return heads_tasks.held_out(heads_tasks.TEST, batches=4)


def test_it_shares_its_weight_as_asked_for_and_looks_nowhere_else(net, tables):
    shares = heads_tasks.weight_on_asked(net, tables)[0]
    torch.testing.assert_close(shares, torch.tensor([0.6, 0.4]), atol=0.02, rtol=0)


def test_it_answers_the_first_question_and_half_of_the_second(net, tables):
    first, second = heads_tasks.answers_by_question(net, tables)
    assert first > 0.98
    assert second == pytest.approx(1 / 8 + 7 / 8 / 2, abs=0.03)


def test_the_second_answer_is_the_higher_of_the_two_values(net, tables):
    with torch.no_grad():
        guesses = torch.cat([net(batch.tokens)[..., 1, :].argmax(-1).flatten() for batch in tables])
    higher = torch.cat([batch.labels.amax(-1).flatten() for batch in tables])
    assert (guesses == higher).float().mean() > 0.98


def test_more_weight_on_the_second_turns_the_first_answer_over(tables):
    """The first answer is the value that weighs more, whichever that is."""
    first, _ = heads_tasks.answers_by_question(heads_by_hand.one_head(0.4), tables)
    assert first == pytest.approx(1 / 8, abs=0.03)


def test_it_has_the_width_and_the_parameters_of_the_trained_one(net):
    assert trainable(net.attentions) == 4 * heads_tasks.WIDTH**2
    assert net.feed_forward is None
