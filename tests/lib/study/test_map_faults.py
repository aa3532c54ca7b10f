"""Faults of the reader of news show in its map as `marks` says, and words have effects of their own."""

import pytest
import torch

from lib.study import map_faults
from lib.study.data import Batch
from lib.study.map_faults import COPIES, FAULTS, FUTURE, PADDING, SOUND, Reader


@pytest.fixture
def batch():
    lengths = torch.tensor([9, 5, 3])
    tokens = torch.randint(2, 4000, (3, 9)).masked_fill(torch.arange(9) >= lengths[:, None], 0)
    return Batch(tokens, lengths, torch.zeros(3, dtype=torch.long))


def marks(fault, batch):
    torch.manual_seed(0)
    model = Reader(fault)
    return map_faults.marks(map_faults.maps(model, batch), batch.lengths)


def test_each_fault_has_its_mark_and_the_sound_reader_none(batch):
    found = {fault: marks(fault, batch) for fault in (SOUND, *FAULTS)}
    assert [fault for fault in found if found[fault]["later"] == 0] == [FUTURE]
    assert [fault for fault in found if found[fault]["padding"] > 0] == [PADDING]
    assert [fault for fault in found if found[fault]["unlike"] == 0] == [COPIES]


def test_one_head_four_times_has_the_parameters_of_one():
    count = {fault: sum(p.numel() for p in Reader(fault).heads.parameters()) for fault in (SOUND, COPIES)}
    assert count[SOUND] == 4 * count[COPIES]


def test_padding_changes_the_answer_of_the_faulty_reader_alone(batch):
    for fault, moves in ((SOUND, False), (FUTURE, False), (COPIES, False), (PADDING, True)):
        torch.manual_seed(0)
        model = Reader(fault)
        alone = model(batch.tokens[1:2, :5], batch.lengths[1:2])
        assert torch.allclose(model(batch.tokens, batch.lengths)[1:2], alone, atol=1e-5) != moves


def test_weights_received_sum_to_one_and_the_effect_is_that_of_an_unknown_word(batch):
    torch.manual_seed(0)
    model = Reader()
    for weights, effect, n in zip(
        map_faults.received(model, batch), map_faults.effects(model, batch), batch.lengths.tolist(), strict=True
    ):
        assert weights.shape == effect.shape == (n,)
        assert weights.sum().item() == pytest.approx(1, abs=1e-5)
    tokens = batch.tokens[2:3, :3].clone()
    before = model(tokens, torch.tensor([3]))[0]
    tokens[0, 1] = 1
    after = model(tokens, torch.tensor([3]))[0]
    topic = before.argmax()
    assert effect[1].item() == pytest.approx(abs(after - before)[topic].item(), abs=1e-5)


def test_rank_correlation_of_equal_reversed_and_unrelated_orders():
    x = torch.tensor([3.0, 1.0, 2.0, 10.0])
    assert map_faults.rank_correlation(x, x.exp()) == pytest.approx(1)
    assert map_faults.rank_correlation(x, -x) == pytest.approx(-1)
    assert abs(map_faults.rank_correlation(torch.arange(4.0), torch.tensor([2.0, 1.0, 4.0, 3.0]))) < 0.7


def test_a_few_steps_learn_and_give_three_figures():
    _, figures = map_faults.train(SOUND, 0, steps=30)
    assert set(figures) == {"train_loss", "dev_loss", "dev_accuracy"}
    assert figures["train_loss"] < 1.7
