"""The trained weights under checkpoints: scripts make models within the limit, and what is shipped is as its card says."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from lib.study import checkpoints
from lib.study.pronunciation import Lexicon, load_cmudict
from lib.study.seq2seq import evaluate
from lib.transformer import Transformer

FOLDER = Path(__file__).resolve().parents[3] / "checkpoints"
SCRIPTS = sorted(FOLDER.glob("train_*.py"))


def script(path):
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_of_weights_has_its_script():
    names = {path.stem.removeprefix("train_") for path in SCRIPTS}
    assert names
    assert {path.stem for path in FOLDER.glob("*.safetensors")} <= names


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_model_of_a_script_fits_into_the_limit_and_comes_back_from_its_file(path, tmp_path):
    module = script(path)
    model = Transformer(module.CONFIG)
    card = module.card(model, Lexicon([], [], []), module.RECIPE, [{"seconds": 90.0}])
    written = checkpoints.save(tmp_path / "weights.safetensors", model, card)
    loaded, known = checkpoints.load(tmp_path / "weights.safetensors")
    assert known == written
    assert loaded.config == module.CONFIG
    assert known.parameters == sum(value.numel() for value in loaded.parameters())
    assert known.minutes == 1.5


def test_what_is_shipped_is_as_good_as_its_card_says():
    lexicon = load_cmudict()
    for path in FOLDER.glob("pronunciation.safetensors"):
        model, card = checkpoints.load(path)
        rates = evaluate(model, lexicon.dev[::10])  # 588 words: a standard error of 2 % at most
        assert abs(100 * rates.words - card.scores["dev, greedy"]["words"]) < 6
