"""The trained weights under checkpoints: scripts make models within the limit, and what is shipped is as its card says."""

from dataclasses import asdict
from pathlib import Path

import pytest

from lib.study import checkpoints
from lib.study.pronunciation import Lexicon, load_cmudict
from lib.study.seq2seq import evaluate
from lib.transformer import Transformer
from tests.lib.study.scripts import load_script

FOLDER = Path(__file__).resolve().parents[3] / "checkpoints"
SCRIPTS = sorted(FOLDER.glob("train_*.py"))
SHIPPED = sorted(FOLDER.glob("*.safetensors"))


def test_every_file_of_weights_has_its_script():
    names = {path.stem.removeprefix("train_") for path in SCRIPTS}
    assert names
    assert {path.stem for path in SHIPPED} <= names


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_model_of_a_script_fits_into_the_limit_and_comes_back_from_its_file(path, tmp_path):
    module = load_script(f"checkpoints/{path.name}")
    model = Transformer(module.CONFIG)
    card = module.card(model, Lexicon([], [], []), module.RECIPE, [{"seconds": 90.0}])
    written = checkpoints.save(tmp_path / "weights.safetensors", model, card)
    loaded, known = checkpoints.load(tmp_path / "weights.safetensors")
    assert known == written
    assert loaded.config == module.CONFIG
    assert known.parameters == sum(value.numel() for value in loaded.parameters())
    assert known.minutes == 1.5


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_is_shipped_is_small_and_made_by_its_script(path):
    module = load_script(f"checkpoints/train_{path.stem}.py")
    model, card = checkpoints.load(path)
    assert path.stat().st_size <= checkpoints.LIMIT
    assert model.config == module.CONFIG
    assert card.parameters == sum(value.numel() for value in model.parameters())
    assert card.storage == "float16"
    assert all(value.isfinite().all() for value in model.state_dict().values())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_card_of_what_is_shipped_is_whole(path):
    module = load_script(f"checkpoints/train_{path.stem}.py")
    _, card = checkpoints.load(path)
    assert card.command == f"python checkpoints/train_{path.stem}.py"  # and with no option: its own recipe is the card's
    assert card.training == asdict(module.RECIPE)
    assert [row["epoch"] for row in card.curve] == list(range(1, module.RECIPE.epochs + 1))
    assert card.minutes == pytest.approx(sum(row["seconds"] for row in card.curve) / 60, abs=0.1)
    assert set(card.stamp) >= {"date", "machine", "python", "torch"}
    assert set(card.scores) == {f"{part}, {how}" for part in ("dev", "test") for how in ("greedy", "beam of 4")}
    assert all(0 < rates["phonemes"] < rates["words"] < 100 for rates in card.scores.values())
    lexicon = load_cmudict()
    assert all(f"{part} {len(getattr(lexicon, part)):,}" in card.split for part in ("train", "dev", "test"))


@pytest.mark.parametrize(("part", "how", "options"), [("dev", "greedy", {}), ("test", "beam of 4", {"strategy": "beam"})])
@pytest.mark.parametrize("path", [path for path in SHIPPED if path.stem == "pronunciation"], ids=lambda path: path.stem)
def test_what_is_shipped_is_as_good_as_its_card_says(path, part, how, options):
    model, card = checkpoints.load(path)
    entries = getattr(load_cmudict(), part)[::15]  # about 390 words
    share = card.scores[f"{part}, {how}"]["words"] / 100
    standard_error = (share * (1 - share) / len(entries)) ** 0.5  # of a sample drawn by chance; 2.5 points at most
    assert abs(evaluate(model, entries, **options).words - share) < 4 * standard_error


def test_another_models_weights_are_not_as_good_as_the_card_says():
    module = load_script("checkpoints/train_pronunciation.py")
    entries = load_cmudict().dev[::100]
    assert evaluate(module.build(), entries).words > 0.9  # untrained: the test above can fail


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_dev_and_test_are_scored_each_for_itself(path):
    _, card = checkpoints.load(path)
    for decoding in ("greedy", "beam of 4"):
        assert card.scores[f"dev, {decoding}"] != card.scores[f"test, {decoding}"]
