"""Short texts under padding: more of it, and other content, change nothing with the mask and something without."""

import pytest
import torch

from lib.study import mask_documents as documents
from lib.study.data import Vocabulary, batches


@pytest.fixture(scope="module")
def reader():
    return documents.build(seed=0).double().eval()


@pytest.fixture
def batch():
    return next(batches(documents.texts("test")[:4], 4))


def test_texts_are_openings_of_the_length_that_was_said():
    lengths = [len(example.tokens) for example in documents.texts("test")]
    assert min(lengths) >= documents.SHORTEST
    assert max(lengths) == documents.LONGEST
    assert len(set(lengths)) > 40
    assert documents.texts("test") is documents.texts("test")


@pytest.mark.parametrize("content", ["padding", "words"])
def test_padding_is_added_behind_each_text(batch, content):
    wide = documents.padded(batch, 7, content)
    assert wide.tokens.shape == (4, batch.tokens.size(1) + 7)
    for before, after, length in zip(batch.tokens, wide.tokens, batch.lengths.tolist(), strict=True):
        assert torch.equal(after[:length], before[:length])
        assert bool((after[length:] == Vocabulary.PAD).all()) == (content == "padding")


@pytest.mark.parametrize("content", ["padding", "words"])
def test_with_the_mask_nothing_moves(reader, content):
    assert documents.movement(reader, True, part="test", more=9, content=content, count=4) < 1e-12


def test_without_the_mask_outputs_move_and_more_padding_moves_them_farther(reader):
    moved = [documents.movement(reader, False, part="test", more=more, count=4) for more in (0, 20, 200)]
    assert 0.01 < moved[0] < moved[1] < moved[2]


def test_a_reader_that_forgets_one_part_reads_a_full_batch_as_before(reader):
    full = next(batches([example for example in documents.texts("test") if len(example.tokens) == documents.LONGEST][:2], 2))
    mask = documents.mask_of(full, True)
    for part in ("attention", "mean"):
        torch.testing.assert_close(documents.forgetting(reader, part)(full.tokens, mask), reader(full.tokens, mask))


def test_each_part_that_forgets_its_mask_is_between_all_and_nothing(reader, batch):
    wide = documents.padded(batch, 20)
    mask = documents.mask_of(wide, True)
    attention, mean = (documents.forgetting(reader, part)(wide.tokens, mask) for part in ("attention", "mean"))
    outputs = [reader(wide.tokens, mask), attention, mean, reader(wide.tokens, None)]
    for i, one in enumerate(outputs):
        assert all((one - other).abs().max() > 1e-4 for other in outputs[i + 1 :])
    other = documents.padded(batch, 20, "words")
    hidden = reader.encoder(reader.embedding(wide.tokens), mask).mean(dim=1)
    torch.testing.assert_close(mean, reader.output(hidden))
    moved = documents.forgetting(reader, "attention")(other.tokens, mask) - attention
    assert moved.abs().max() > 1e-4


def test_accuracy_counts_the_right_topics(monkeypatch):
    examples = documents.texts("test")[:6]
    monkeypatch.setattr(documents, "texts", lambda part: examples)

    def model(tokens, mask):
        logits = torch.zeros(len(examples), 5)
        logits[torch.arange(len(examples)), torch.tensor([e.label for e in examples])] = 1
        logits[0] = -logits[0]
        return logits

    assert documents.accuracy(model, True, part="test") == pytest.approx(5 / 6)


def test_a_short_training_learns_something():
    model = documents.train(True, lr=1e-2, seed=0, steps=40)
    assert documents.accuracy(model, True, part="dev") > 0.4
