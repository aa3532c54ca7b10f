"""Training a Transformer to pronounce: what the loss counts, that it learns, and that an interruption changes nothing."""

import math
from dataclasses import replace

import pytest
import torch

from lib.study import seq2seq
from lib.study.pronunciation import LETTERS, PHONEMES, Entry, Pair, collate, pairs
from lib.study.seq2seq import Recipe, evaluate, mixed_precision, train, transcribe, translation_loss
from lib.transformer import Transformer, TransformerConfig

_LETTERS, _SOUNDS = "abdefgijklmnoprstuvz", "AA B D EH F G IH JH K L M N OW P R S T UH V Z"
SOUND = dict(zip(_LETTERS, _SOUNDS.split(), strict=True))
RECIPE = Recipe(epochs=4, max_tokens=512, precision="float32")


def toy_model(**changes):
    torch.manual_seed(0)
    sizes = {"d_model": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 64}
    sizes |= {"vocab_size": len(LETTERS), "target_vocab_size": len(PHONEMES), "norm_first": True, "tie_embeddings": False}
    return Transformer(TransformerConfig(**(sizes | changes)))


@pytest.fixture(scope="module")
def toy():
    """A language in which every letter sounds the same everywhere."""
    generator = torch.Generator().manual_seed(0)
    letters = list(SOUND)
    words = ["".join(letters[i] for i in torch.randint(20, (3 + n % 4,), generator=generator)) for n in range(400)]
    return [Entry(word, (tuple(SOUND[letter] for letter in word),)) for word in words]


def test_the_loss_is_the_mean_over_real_phonemes(toy):
    model = toy_model().eval()
    batch = collate(pairs(toy[:6]))
    alone = [collate([pair]) for pair in pairs(toy[:6])]
    total = sum(translation_loss(model, one) * one.labels.numel() for one in alone)
    expected = total / sum(one.labels.numel() for one in alone)
    torch.testing.assert_close(translation_loss(model, batch), expected, rtol=1e-5, atol=1e-6)


def test_an_untrained_model_is_about_as_good_as_a_guess():
    loss = translation_loss(toy_model().eval(), collate([Pair(LETTERS.encode("cat"), PHONEMES.encode(("K", "AE", "T")))]))
    assert abs(loss.item() - math.log(len(PHONEMES))) < 1.5


@pytest.fixture(scope="module")
def learned(toy):
    """A model that has seen 340 of the 400 words, and the rows of its training."""
    model = toy_model(dropout=0.0)
    rows = train(model, pairs(toy[:340]), replace(RECIPE, epochs=30), progress=False)
    return model, rows


def test_it_learns_to_pronounce_words_it_has_not_seen(toy, learned):
    model, rows = learned
    unseen = [entry for entry in toy[340:] if entry not in toy[:340]]
    assert evaluate(toy_model(), unseen).words == 1.0
    assert rows[-1]["loss"] < rows[0]["loss"] / 2
    assert evaluate(model, unseen).phonemes < 0.1
    assert evaluate(model, unseen, strategy="beam", num_beams=3).phonemes < 0.1


def test_an_interrupted_training_ends_with_the_same_weights_and_rows(toy, tmp_path, monkeypatch):
    def measure(model):
        return {"dev": evaluate(model, toy[:20]).phonemes}

    def stop_in_the_third_epoch(*arguments):
        calls.append(None)
        if len(calls) == 25:
            raise InterruptedError
        return step(*arguments)

    whole, broken = toy_model(), toy_model()
    measured = train(whole, pairs(toy), RECIPE, evaluate=measure, progress=False)
    calls, step, run = [], seq2seq._step, tmp_path / "run"
    monkeypatch.setattr(seq2seq, "_step", stop_in_the_third_epoch)
    with pytest.raises(InterruptedError):
        train(broken, pairs(toy), RECIPE, evaluate=measure, progress=False, run=run)
    monkeypatch.setattr(seq2seq, "_step", step)
    torch.manual_seed(123)  # another process, with other random numbers and other weights
    fresh = Transformer(broken.config)
    rows = train(fresh, pairs(toy), RECIPE, evaluate=measure, progress=False, run=run)
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert [row | {"seconds": 0} for row in rows] == [row | {"seconds": 0} for row in measured]
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), fresh.state_dict().values(), strict=True))


def test_a_finished_training_is_not_done_again(toy, tmp_path, monkeypatch):
    recipe, run = replace(RECIPE, epochs=1), tmp_path / "run"
    first = toy_model()
    rows = train(first, pairs(toy), recipe, run=run, progress=False)
    monkeypatch.setattr(seq2seq, "_step", None)
    second = toy_model()
    assert train(second, pairs(toy), recipe, run=run, progress=False) == rows
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    ("changes", "sizes", "message"),
    [({"lr": 0.1}, {}, r"with lr = 0\.01, not 0\.1"), ({}, {"dropout": 0.2}, "with model = ")],
    ids=["recipe", "model"],
)
def test_a_run_of_another_recipe_or_model_is_refused(toy, tmp_path, changes, sizes, message):
    recipe, run = replace(RECIPE, epochs=1), tmp_path / "run"
    train(toy_model(), pairs(toy), recipe, run=run, progress=False)
    with pytest.raises(ValueError, match=message):
        train(toy_model(**sizes), pairs(toy), replace(recipe, **changes), run=run, progress=False)


def test_a_loss_that_is_no_number_ends_the_training(toy):
    model = toy_model()
    torch.nn.init.constant_(model.output.weight, math.nan)
    with pytest.raises(FloatingPointError, match="nan in epoch 1: try a learning rate below"):
        train(model, pairs(toy), RECIPE, progress=False)


def test_training_in_bfloat16_comes_to_nearly_the_same_loss(toy):
    losses = {}
    for precision in ("float32", "bfloat16"):
        model = toy_model(dropout=0.0)
        rows = train(model, pairs(toy), replace(RECIPE, precision=precision), progress=False)
        losses[precision] = rows[-1]["loss"]
        assert rows[-1]["precision"] == precision
        assert {value.dtype for value in model.parameters()} == {torch.float32}
    assert losses["bfloat16"] != losses["float32"]
    assert abs(losses["bfloat16"] - losses["float32"]) < 0.05


def test_the_rate_rises_and_then_falls_to_nothing():
    recipe = Recipe(epochs=1, warmup=0.1)
    rates = [recipe.rate(done / 100) for done in range(101)]
    assert rates[0] == rates[100] == 0
    assert rates[10] == max(rates) == 1
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_words_of_all_lengths_are_transcribed_in_their_order(toy, learned):
    model, _ = learned
    words = [entry.spelling for entry in toy[:30]]
    together = transcribe(model, words, at_once=7)
    assert together == [transcribe(model, [word])[0] for word in words]
    assert len(set(together)) > 20


def test_transcribing_leaves_the_mode_as_it_was(toy):
    model = toy_model().train()
    transcribe(model, ["abba"])
    assert model.training


def test_every_weight_has_one_optimizer_and_matrices_inside_the_layers_have_muon():
    model = toy_model()
    parts = seq2seq._optimizers(model, RECIPE, steps=1)
    names = {id(value): name for name, value in model.named_parameters()}
    muon, adam = ([names[id(value)] for value in parts[name].param_groups[0]["params"]] for name in ("muon", "adam"))
    assert sorted(muon + adam) == sorted(names.values())
    assert all(".layers." in name and name.endswith("weight") and "norm" not in name for name in muon)
    assert len(muon) == 4 + 6  # in_proj and out_proj of each attention, linear1 and linear2
    assert {"source_embedding.tokens.weight", "output.weight"} <= set(adam)


def test_the_precision_is_one_that_this_device_is_fast_in(device):
    assert mixed_precision(torch.device(device)) in (torch.float32, torch.bfloat16)
    assert mixed_precision(torch.device("meta")) == torch.float32
