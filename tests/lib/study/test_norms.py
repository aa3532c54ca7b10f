"""Arrangements of residual and norm: each is its formula, all start alike, and small writers learn or break."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lib.layers import EncoderLayer
from lib.study import norms

FORMULAS = {
    "post-norm": lambda x, f, norm: norm(x + f(x)),
    "pre-norm": lambda x, f, norm: x + f(norm(x)),
    "no residual": lambda x, f, norm: norm(f(x)),
    "no norm": lambda x, f, norm: x + f(x),
    "neither": lambda x, f, norm: f(x),
}


def new_layer(arrangement, **options):
    torch.manual_seed(0)
    layer = norms.AblatedLayer(8, 2, 16, arrangement=arrangement, **options)
    for norm in (layer.norm1, layer.norm2):
        for parameter in norm.parameters():  # norms that start alike would hide which is used where
            nn.init.normal_(parameter)
    return layer


@pytest.fixture
def few_words(monkeypatch):
    """Words of two letters in turn, so that no dictionary is read: "abababa", "bababab" and so on."""
    generator = torch.Generator().manual_seed(5)
    pairs = torch.randint(3, 29, (40, 2), generator=generator)
    rows = pairs.repeat(1, 4)[:, : norms.L]
    parts = {"train": rows[:30], "dev": rows[:20], "test": rows[30:]}
    monkeypatch.setattr(norms, "words", lambda: parts)
    norms.frequency_bits.cache_clear()
    yield parts
    norms.frequency_bits.cache_clear()


@pytest.mark.parametrize("arrangement", norms.ARRANGEMENTS)
def test_each_arrangement_is_its_formula(arrangement):
    layer = new_layer(arrangement)
    x = torch.randn(3, 5, 8)
    formula = FORMULAS[arrangement]
    want = formula(x, lambda x: layer.self_attn(x, is_causal=True)[0], layer.norm1)
    want = formula(want, layer.feed_forward, layer.norm2)
    assert torch.allclose(layer(x, is_causal=True), want, atol=1e-6)


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_two_complete_arrangements_are_the_library_s_layer(norm_first):
    torch.manual_seed(0)
    library = EncoderLayer(8, 2, 16, dropout=0.0, norm_first=norm_first)
    ablated = norms.AblatedLayer(8, 2, 16, arrangement="pre-norm" if norm_first else "post-norm")
    ablated.load_state_dict(library.state_dict())
    x = torch.randn(2, 4, 8)
    assert torch.equal(library(x), ablated(x))


def test_dropout_falls_on_a_sub_layer_without_residual_too():
    layer = new_layer("neither", dropout=1.0)
    assert torch.equal(layer(torch.randn(2, 3, 8)), torch.zeros(2, 3, 8))


def test_an_unknown_arrangement_is_told():
    with pytest.raises(ValueError, match=r"post-norm, pre-norm, .* got 'sandwich'"):
        norms.AblatedLayer(8, 2, 16, arrangement="sandwich")


def test_all_arrangements_start_from_the_same_random_weights_and_leave_the_global_generator_alone():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    models = {arrangement: norms.new_writer(arrangement, 3, seed=1).state_dict() for arrangement in norms.ARRANGEMENTS}
    assert torch.equal(torch.get_rng_state(), state)
    smallest = models["neither"]
    assert len(smallest) > 3 * 8
    for model in models.values():
        assert all(torch.equal(model[name], value) for name, value in smallest.items())
    other = norms.new_writer("neither", 3, seed=2).state_dict()
    assert not torch.equal(other["embedding.tokens.weight"], smallest["embedding.tokens.weight"])


def test_the_layers_of_a_writer_differ():
    first, second = norms.new_writer("post-norm", 2, seed=0).decoder.layers
    assert not torch.equal(first.feed_forward.linear1.weight, second.feed_forward.linear1.weight)


def test_only_pre_norm_has_a_last_norm():
    assert {a for a in norms.ARRANGEMENTS if norms.new_writer(a, 1, 0).decoder.norm is not None} == {"pre-norm"}


def test_the_arm_beside_the_five_is_no_norm_with_one_norm_behind_the_last_layer():
    plain, last = norms.new_writer("no norm", 3, seed=1), norms.new_writer(norms.LAST_NORM, 3, seed=1)
    words = torch.arange(3, 10)[None]
    with torch.no_grad():
        x = plain.decoder(plain.embedding(words))
        assert torch.allclose(last.decoder(last.embedding(words)), F.layer_norm(x, (norms.WIDTH,)), atol=1e-5)


@pytest.mark.parametrize("arrangement", norms.ARRANGEMENTS)
def test_a_letter_is_guessed_from_those_before_it_alone(arrangement, few_words):
    model = norms.new_writer(arrangement, 2, seed=0)
    words = few_words["train"][:4]
    seen = []
    model.register_forward_hook(lambda _, args, logits: seen.append((args[0], logits)))
    norms.letter_loss(model, words)
    changed = words.clone()
    changed[:, -1] = 3 + (changed[:, -1] - 2) % 26  # the last letter is asked for, and never shown
    norms.letter_loss(model, changed)
    assert torch.equal(seen[0][0][:, 1:], words[:, :-1])
    assert torch.equal(seen[0][1], seen[1][1])


def test_bits_of_a_guess_that_knows_nothing_are_those_of_26_letters(few_words):
    model = norms.new_writer("post-norm", 1, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)
    assert norms.bits(model, "dev") == norms.UNIFORM == math.log2(26)


def test_bits_of_a_guess_by_frequencies_by_hand(few_words, monkeypatch):
    train = torch.tensor([[3, 3, 3, 4]])
    monkeypatch.setattr(norms, "words", lambda: {"train": train, "dev": torch.tensor([[3, 4]])})
    norms.frequency_bits.cache_clear()
    assert norms.frequency_bits("dev") == pytest.approx((math.log2(4 / 3) + 2) / 2)


def test_a_shallow_writer_learns_and_a_wild_rate_breaks_it(few_words):
    model, losses = norms.train_writer("pre-norm", 1, 1e-2, seed=0, steps=60)
    assert len(losses) == 60
    assert norms.bits(model, "dev") < 2.0 < losses[0]
    row = norms.trial("no norm", 2, 1e6, seed=0, steps=20)
    assert row["dev_bits"] == row["test_bits"] == round(norms.UNIFORM, 4)


def test_warm_up_starts_small_and_ends_at_the_rate(few_words):
    start = norms.new_writer("pre-norm", 1, seed=0)
    slow, _ = norms.train_writer("pre-norm", 1, 1e-2, seed=0, warmup=10, steps=1)
    fast, _ = norms.train_writer("pre-norm", 1, 1e-2, seed=0, steps=1)
    before, *after = (model.decoder.layers[0].feed_forward.linear1.weight for model in (start, slow, fast))
    moved = [(weight - before).abs().max().item() for weight in after]
    assert moved[0] == pytest.approx(1e-3, rel=0.02)  # Adam's first step is as large as the rate
    assert moved[1] == pytest.approx(1e-2, rel=0.02)


def test_a_trial_names_its_setting_and_is_repeated_to_the_digit(few_words):
    row = norms.trial("post-norm", 1, 3e-3, seed=2, steps=5)
    assert {key: row[key] for key in ("arrangement", "depth", "lr", "warmup", "steps", "seed", "steps_done")} == {
        "arrangement": "post-norm",
        "depth": 1,
        "lr": 3e-3,
        "warmup": 0,
        "steps": 5,
        "seed": 2,
        "steps_done": 5,
    }
    assert norms.trial("post-norm", 1, 3e-3, seed=2, steps=5) == row


def test_gradients_are_those_of_a_step_and_in_the_order_of_the_layers(few_words):
    found = norms.at_the_start("no norm", 3, seed=4)
    model = norms.new_writer("no norm", 3, seed=4)
    norms.letter_loss(model, next(norms.word_batches(4))).backward()
    assert found["bits"].item() == pytest.approx(norms.letter_loss(model, next(norms.word_batches(4))).item() / math.log(2))
    want = torch.stack([layer.feed_forward.linear2.weight.grad.norm() for layer in model.decoder.layers])
    assert torch.allclose(found["of weights"], want)

    def from_layer(i):  # the rest of the model, by hand, from what goes into layer i
        words = next(norms.word_batches(4))
        begin = torch.full_like(words[:, :1], 1)
        x = model.embedding(torch.cat([begin, words[:, :-1]], dim=1))
        for layer in model.decoder.layers[:i]:
            x = layer(x, is_causal=True)
        x = x.detach().requires_grad_()
        y = x
        for layer in model.decoder.layers[i:]:
            y = layer(y, is_causal=True)
        loss = nn.functional.cross_entropy(model.logits(y).flatten(0, 1), words.flatten())
        return torch.autograd.grad(loss, x)[0].norm()

    assert torch.allclose(found["gradient"], torch.stack([from_layer(i) for i in range(3)]))


def test_mean_cosine_by_hand():
    assert norms.mean_cosine(torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])) == pytest.approx(1 / 3)
    assert norms.mean_cosine(torch.ones(4, 3)) == pytest.approx(1)


def test_likeness_is_that_of_what_goes_in_and_of_what_comes_out(few_words):
    found = norms.at_the_start("post-norm", 2, seed=1)["alike"]
    model = norms.new_writer("post-norm", 2, seed=1)
    words = next(norms.word_batches(1))
    x = model.embedding(torch.cat([torch.full_like(words[:, :1], 1), words[:, :-1]], dim=1))
    want = [norms.mean_cosine(x.flatten(0, 1))]
    for layer in model.decoder.layers:
        x = layer(x, is_causal=True)
        want.append(norms.mean_cosine(x.flatten(0, 1)))
    assert torch.allclose(found, torch.stack(want), atol=1e-5)
