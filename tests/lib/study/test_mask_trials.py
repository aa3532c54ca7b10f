"""The words written backwards, the loss that no honest model goes below, and what the training of a faulty one reports."""

import math

import pytest
import torch

from lib.study import mask_trials as trials
from lib.study.mask_faults import NAN_ROW, NO_CAUSAL, NONE

LENGTHS = torch.tensor([3, 5, 0])


def batch(seed: int = 0) -> trials.Words:
    return trials.words(torch.Generator().manual_seed(seed), LENGTHS)


def test_words_are_padded_behind_and_their_answer_is_the_word_backwards():
    words = batch()
    for source, clean, length in zip(words.source.tolist(), words.clean.tolist(), LENGTHS.tolist(), strict=True):
        assert source[length:] == [trials.PAD] * (5 - length)
        assert all(0 <= letter < trials.LETTERS for letter in source[:length])
        assert clean == [*reversed(source[:length]), trials.END, *[trials.IGNORED] * (5 - length)]


def test_the_target_is_the_label_one_step_later():
    words = batch()
    assert words.target[:, 0].tolist() == [trials.START] * 3
    for target, labels, length in zip(words.target.tolist(), words.labels.tolist(), LENGTHS.tolist(), strict=True):
        assert target[1 : length + 1] == labels[:length]
        assert labels[length] == trials.END


def test_slips_are_as_frequent_as_said():
    words = trials.words(torch.Generator().manual_seed(1), torch.full((2000,), 10))
    wrong = (words.labels != words.clean)[:, :10].double().mean().item()
    assert wrong == pytest.approx(trials.SLIP * (1 - 1 / trials.LETTERS), abs=0.01)


def test_the_floor_is_the_loss_of_a_model_that_knows_all_but_the_slips():
    words = trials.words(torch.Generator().manual_seed(2), torch.full((4000,), 8))
    right = 1 - trials.SLIP + trials.SLIP / trials.LETTERS
    other = trials.SLIP / trials.LETTERS
    letters = torch.where(words.labels == words.clean, -math.log(right), -math.log(other))[:, :8]
    measured = letters.sum().item() / (letters.numel() + 4000)  # the end is certain
    assert trials.floor(words) == pytest.approx(measured, rel=0.02)


def test_wider_adds_padding_and_nothing_else():
    words = batch()
    wide = trials.wider(words, 4)
    assert torch.equal(wide.source[:, :5], words.source)
    assert (wide.source[:, 5:] == trials.PAD).all()
    model = trials.build(NONE, seed=0).eval()
    torch.testing.assert_close(model(*wide[:3]), model(*words[:3]), atol=1e-5, rtol=0)


def test_what_is_written_is_counted_against_the_clean_word():
    class Oracle:
        decoder = (None,)

        def encode(self, source, lengths):
            return source

        def decode(self, token, memory, lengths, caches):
            caches[0]["t"] = t = caches[0].get("t", -1) + 1
            answer = [[*reversed(word[:n]), trials.END][min(t, n)] for word, n in zip(memory.tolist(), lengths, strict=True)]
            return torch.nn.functional.one_hot(torch.tensor(answer)[:, None], trials.VOCABULARY)

    words = batch()
    assert trials.written(Oracle(), words) == 1.0
    assert trials.written(Oracle(), words._replace(clean=words.clean.where(words.clean == trials.END, 0))) < 1.0


def test_the_same_seed_gives_the_same_batches_and_every_fault_the_same_start():
    assert torch.equal(next(trials.batches(3)).target, next(trials.batches(3)).target)
    one, other = trials.build(NONE, 0), trials.build(NO_CAUSAL, 0)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_training_reports_what_was_asked_and_learns():
    rows = trials.train(NONE, steps=60, lr=3e-3, seed=0, every=30)
    assert [row["step"] for row in rows] == [30, 60]
    assert rows[1]["train_loss"] < rows[0]["train_loss"]
    assert rows[1]["nan_step"] is None
    assert rows[1]["floor"] < rows[1]["eval_loss"]


def test_training_ends_at_a_loss_that_is_no_number(monkeypatch):
    monkeypatch.setattr(trials, "EMPTY", 0.05)
    rows = trials.train(NAN_ROW, steps=30, lr=3e-3, seed=0, every=10)
    assert rows[-1]["nan_step"] == rows[-1]["step"] < 30
    assert all(row["nan_step"] is None for row in rows[:-1])
    assert trials.train(NONE, steps=30, lr=3e-3, seed=0, every=10)[-1]["step"] == 30


def test_words_of_each_length_are_written_and_counted_alone(monkeypatch):
    monkeypatch.setattr(trials, "written", lambda model, batch: (batch.lengths.tolist(), batch.source.size(1)))
    shares = trials.written_by_length(trials.build(NONE, seed=0), count=2)
    assert list(shares) == [0, *range(3, trials.LONGEST + 1)]
    assert shares == {n: ([n, n], max(n, 1)) for n in shares}


def test_clipping_can_be_left_out_and_a_model_be_given():
    model = trials.build(NONE, seed=0)
    before = [p.clone() for p in model.parameters()]
    clipped = trials.train(NONE, steps=20, lr=3e-2, seed=0, every=20)
    free = trials.train(NONE, steps=20, lr=3e-2, seed=0, every=20, clip=math.inf, model=model)
    assert clipped[-1]["train_loss"] != free[-1]["train_loss"]
    assert not all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
