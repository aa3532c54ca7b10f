"""Checkpoints that are shipped, and the state of a training: what comes back, and what is refused with which remedy."""

import json
import random

import numpy as np
import pytest
import torch

from lib.study import checkpoints
from lib.study.checkpoints import Card, load, load_run, save, save_run
from lib.transformer import DecoderLM, Transformer, TransformerConfig

CONFIG = {"vocab_size": 11, "d_model": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
CONFIG |= {"dim_feedforward": 32, "norm_first": True}


def card(**changes):
    values = {"title": "Toy", "data": "none", "split": "none", "config": CONFIG, "parameters": 1, "training": {"seed": 0}}
    values |= {"minutes": 0.1, "scores": {"words": 0.5}, "command": "make train", "stamp": {"torch": torch.__version__}}
    return Card(**(values | changes))


@pytest.fixture
def model():
    return Transformer(TransformerConfig(**CONFIG))


@pytest.fixture
def path(tmp_path, model):
    save(tmp_path / "toy.safetensors", model, card())
    return tmp_path / "toy.safetensors"


def test_the_model_comes_back_rounded_to_half_precision_and_ready_to_use(path, model):
    loaded, known = load(path)
    assert not loaded.training
    for name, value in model.state_dict().items():
        assert loaded.state_dict()[name].dtype == torch.float32
        torch.testing.assert_close(loaded.state_dict()[name], value, rtol=2**-11, atol=1e-7)
    tokens = torch.randint(11, (2, 5))
    torch.testing.assert_close(loaded(tokens, tokens), model.eval()(tokens, tokens), rtol=0.01, atol=0.01)
    assert (known.title, known.storage, known.scores) == ("Toy", "float16", {"words": 0.5})


def test_weights_kept_in_float32_come_back_bit_for_bit(tmp_path, model):
    save(tmp_path / "toy.safetensors", model, card(), dtype=torch.float32)
    loaded, known = load(tmp_path / "toy.safetensors")
    assert known.storage == "float32"
    assert all(torch.equal(loaded.state_dict()[name], value) for name, value in model.state_dict().items())


def test_another_kind_of_model_can_be_built(tmp_path):
    save(tmp_path / "lm.safetensors", DecoderLM(TransformerConfig(**CONFIG)), card())
    assert isinstance(load(tmp_path / "lm.safetensors", DecoderLM)[0], DecoderLM)


def test_the_card_is_plain_json_beside_the_weights(path):
    content = json.loads(path.with_suffix(".json").read_text())
    assert content["config"] == CONFIG
    assert content["command"] == "make train"
    assert len(content["sha256"]) == 64


@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
def test_a_missing_file_is_answered_by_the_command_that_makes_it(path, suffix):
    path.with_suffix(suffix).unlink()
    with pytest.raises(FileNotFoundError, match=r"is missing: make it with `python checkpoints/train_toy\.py`") as error:
        load(path)
    assert "\n" not in str(error.value)


def damage(file, place):
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("place", [0, 9, -1])
def test_one_flipped_bit_of_the_weights_is_found(path, place):
    damage(path, place)
    with pytest.raises(ValueError, match=r"is damaged.*: make it with `python checkpoints/train_toy\.py`") as error:
        load(path)
    assert "\n" not in str(error.value)


def test_weights_that_were_cut_short_are_found(path):
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="is damaged"):
        load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"title": "Toy"}', b"\xff\xfe"])
def test_a_card_that_cannot_be_read_is_answered_too(path, content):
    path.with_suffix(".json").write_bytes(content)
    with pytest.raises(ValueError, match=r"card .* is damaged: make it with"):
        load(path)


def test_a_file_over_the_limit_is_refused_and_nothing_is_written(tmp_path, model, monkeypatch):
    size = 2 * sum(value.numel() for value in model.parameters())
    monkeypatch.setattr(checkpoints, "LIMIT", size)  # the names of the weights are more than nothing
    with pytest.raises(ValueError, match=rf"limit is {size:,}"):
        save(tmp_path / "toy.safetensors", model, card())
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(checkpoints, "LIMIT", size + 5000)
    save(tmp_path / "toy.safetensors", model, card())


def test_a_weight_too_large_for_the_dtype_is_refused(tmp_path, model):
    with torch.no_grad():
        model.encoder.layers[0].norm1.weight[0] = 1e6
    with pytest.raises(ValueError, match=r"norm1\.weight holds numbers that are not finite in torch\.float16"):
        save(tmp_path / "toy.safetensors", model, card())


class Counter:
    """A part with a state."""

    def __init__(self, number=0):
        self.number = number

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


def test_a_run_goes_on_with_its_parts_its_rows_and_the_same_random_numbers(tmp_path):
    file = tmp_path / "folder" / "run"
    save_run(file, 3, {"lr": 0.1}, [{"loss": 1.0}], {"counter": Counter(7)})

    def draw():
        return random.random(), np.random.rand(), np.random.randn(), torch.rand(3).tolist()

    drawn, counter = draw(), Counter()
    assert load_run(file, {"lr": 0.1}, {"counter": counter}) == (3, [{"loss": 1.0}])
    assert counter.number == 7
    assert draw() == drawn


def test_without_a_file_a_run_starts_from_the_beginning_and_nothing_changes(tmp_path):
    state = torch.get_rng_state()
    assert load_run(tmp_path / "run", {}, {}) == (0, [])
    assert torch.equal(torch.get_rng_state(), state)


def test_a_run_with_other_settings_is_refused_by_name(tmp_path):
    save_run(tmp_path / "run", 1, {"lr": 0.1, "seed": 0}, [], {})
    with pytest.raises(ValueError, match=r"with seed = 0, not 1: delete it"):
        load_run(tmp_path / "run", {"lr": 0.1, "seed": 1}, {})


@pytest.mark.parametrize("cut", [0, 10, 32, 200])
def test_a_damaged_run_is_refused_in_one_line(tmp_path, cut):
    file = tmp_path / "run"
    save_run(file, 1, {}, [], {"model": torch.nn.Linear(2, 2)})
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ValueError, match="is damaged: delete it to start from the beginning") as error:
        load_run(file, {}, {})
    assert "\n" not in str(error.value)


def test_a_write_that_is_interrupted_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "run"
    checkpoints.write_whole(file, b"old")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints.os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.write_whole(file, b"new")
    assert file.read_bytes() == b"old"
