"""Several look-ups at once and the copy task: right labels, fair nets, and what one head can and cannot do."""

from itertools import islice

import pytest
import torch
from torch import nn

from lib.multihead import MultiHeadAttention
from lib.study import heads_tasks as tasks
from lib.study.classifiers import trainable
from lib.study.training import accuracy, classification_loss


@pytest.mark.parametrize("relations", [1, 2, 3])
def test_every_label_is_the_value_of_the_token_that_was_asked_for(relations):
    tokens, lengths, labels = next(tasks.look_ups(0, relations, batch_size=5))
    assert tokens.shape == (5, tasks.MEMBERS, 2 + relations)
    assert labels.shape == (5, tasks.MEMBERS, relations)
    assert lengths.tolist() == [tasks.MEMBERS] * 5
    for table, answers in zip(tokens.tolist(), labels.tolist(), strict=True):
        value_of = {name: value for name, *_, value in table}
        assert len(value_of) == tasks.MEMBERS  # names do not repeat
        for (name, *asked, _), answer in zip(table, answers, strict=True):
            assert [value_of[other] for other in asked] == answer
            assert len({name, *asked}) == relations + 1  # others than itself, all different


def test_each_token_is_asked_for_as_often_as_it_asks():
    tokens = next(tasks.look_ups(1, 2, batch_size=3)).tokens
    for table in tokens.tolist():
        names = sorted(row[0] for row in table)
        assert sorted(row[1] for row in table) == sorted(row[2] for row in table) == names


def test_tables_come_from_the_seed_and_the_held_out_ones_are_others():
    one, again, other = (next(tasks.look_ups(seed)).tokens for seed in (0, 0, tasks.TEST))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(tasks.held_out(tasks.TEST, batches=1)[0].tokens, other)


def test_the_number_of_heads_changes_nothing_but_the_cut():
    sizes = {h: trainable(tasks.LookUpNet(lambda h=h: MultiHeadAttention(tasks.WIDTH, h)).attentions) for h in (1, 2, 64)}
    assert set(sizes.values()) == {4 * tasks.WIDTH**2}


def test_logits_and_labels_fit_and_a_fresh_net_guesses():
    torch.manual_seed(0)
    net = tasks.LookUpNet(lambda: MultiHeadAttention(tasks.WIDTH, 2), layers=2, feed_forward=True)
    batch = next(tasks.look_ups(0))
    assert net(batch.tokens).shape == (64, tasks.MEMBERS, 2, tasks.VALUES)
    assert 1.5 < classification_loss(net, batch).item() < 4  # ln 8 is 2.08


def test_the_coin_is_what_a_blend_without_order_allows():
    """Who knows both values, and takes one of them for the first answer and the other for the second, by a coin."""
    batches = islice(tasks.look_ups(3), 20)
    labels = torch.cat([batch.labels for batch in batches]).flatten(0, 1)
    coin = torch.rand(len(labels), generator=torch.Generator().manual_seed(0)) < 0.5
    guess = torch.where(coin[:, None], labels, labels.flip(1))
    assert (guess == labels).float().mean().item() == pytest.approx(tasks.COIN, abs=0.01)


def test_the_copy_net_has_no_way_around_its_attention():
    class Silent(nn.Module):
        def forward(self, x):
            return torch.zeros_like(x), None

    net = tasks.CopyNet(Silent)
    one, other = (next(tasks.copies(seed)).tokens for seed in (0, 1))
    assert torch.equal(net(one), net(other))
    batch = next(tasks.copies(0))
    assert torch.equal(batch.tokens, batch.labels)


def test_training_learns_and_depends_on_the_seed_alone():
    def make():
        return MultiHeadAttention(tasks.WIDTH, 4)

    score = tasks.score_copy(make, steps=60, lr=3e-3, seed=0)
    assert score > 0.3  # 1 in 16 by chance
    assert score == tasks.score_copy(make, steps=60, lr=3e-3, seed=0)
    assert 0 < tasks.score_look_up(make, steps=5, lr=3e-3, seed=0, relations=2) < 0.4


def test_weight_on_asked_counts_the_tokens_that_are_asked_for():
    """Two heads made by hand: one that looks at the first token asked for, and one that looks at all alike."""
    net = tasks.LookUpNet(lambda: MultiHeadAttention(tasks.WIDTH, 2, d_k=tasks.NAMES))
    names, first, second, values = net.embeddings
    with torch.no_grad():
        for embedding in (second, values):
            embedding.weight.zero_()
        eye = torch.eye(tasks.NAMES)
        names.weight.copy_(torch.cat([eye, 0 * eye], dim=1))
        first.weight.copy_(torch.cat([0 * eye, eye], dim=1))
        w_q, w_k, _ = net.attentions[0].projections()  # (2 · 32, 64), head by head
        w_q.copy_(torch.cat([torch.cat([0 * eye, 1000 * eye], dim=1), torch.zeros(tasks.NAMES, tasks.WIDTH)]))
        w_k.copy_(torch.cat([torch.cat([eye, 0 * eye], dim=1)] * 2))
    found = tasks.weight_on_asked(net, tasks.held_out(tasks.TEST, batches=2))
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0], [1 / 12, 1 / 12]]))


def test_answers_by_question_are_the_parts_of_the_accuracy():
    torch.manual_seed(0)
    net = tasks.LookUpNet(lambda: MultiHeadAttention(tasks.WIDTH, 2))
    tables = tasks.held_out(tasks.TEST, batches=3)
    parts = tasks.answers_by_question(net, tables)
    assert len(parts) == 2
    assert sum(parts) / 2 == pytest.approx(accuracy(net, tables), abs=1e-6)


def test_width_of_queries_is_free_and_values_keep_theirs():
    net, history = tasks.train_look_ups(64, d_k=8, steps=2, lr=1e-3, seed=0)
    w_q, w_k, w_v = net.attentions[0].projections()
    assert len(w_q) == len(w_k) == 64 * 8
    assert len(w_v) == tasks.WIDTH
    assert len(history.losses) == 2
    same, plain = (tasks.train_look_ups(4, **extra, steps=2, lr=1e-3, seed=0)[1] for extra in ({"d_k": 16}, {}))
    assert same.losses == plain.losses
