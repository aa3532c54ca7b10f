"""The runs that scripts and chapters share: rows are complete, repeat themselves, and say what was really done."""

from itertools import product
from pathlib import Path

import pytest

from lib.study import records, trials
from lib.study.classifiers import READERS
from lib.study.data import tokenize


def quick(**settings):
    defaults = {"longest": 100, "steps": 3, "lr": 0.01, "seed": 0, "lengths": (50, 60), "positions": (0.0, 1.0)}
    return trials.read_passages("BiLSTM, mean", **{**defaults, **settings})


def test_a_run_gives_one_row_for_each_length_and_position():
    rows = quick(part="dev")
    assert [(row["length"], row["position"]) for row in rows] == [(50, 0.0), (50, 1.0), (60, 0.0), (60, 1.0)]
    for row in rows:
        assert {name: row[name] for name in ("network", "longest", "steps", "lr", "seed", "part")} == {
            "network": "BiLSTM, mean", "longest": 100, "steps": 3, "lr": 0.01, "seed": 0, "part": "dev",
        }  # fmt: skip
        assert 0 <= row["accuracy"] <= 1


def test_the_same_seed_gives_the_same_rows_and_another_does_not():
    assert quick() == quick()
    assert quick()[0]["train_loss"] != quick(seed=1)[0]["train_loss"]


def test_a_reader_without_order_scores_the_same_wherever_the_passage_stands():
    rows = trials.read_passages("bag of words", longest=100, steps=100, lr=0.03, seed=0, lengths=(50,))
    assert len({row["accuracy"] for row in rows}) == 1
    assert rows[0]["accuracy"] > 0.6  # of four topics: it learned something


@pytest.mark.parametrize("task", trials.TASKS)
def test_every_task_runs_with_every_kind_of_projections(task):
    counts = {
        (projections, bias): trials.project(task, projections, bias=bias, steps=2, lr=0.01, seed=0, part="dev")["parameters"]
        for projections, bias in (("all", False), ("all", True), ("shared", False), ("none", False))
    }
    assert counts == {("all", False): 12288, ("all", True): 12480, ("shared", False): 8192, ("none", False): 0}


def test_the_look_up_is_learned_with_all_projections():
    assert trials.project("look-up", "all", steps=250, lr=0.003, seed=0)["accuracy"] > 0.9


def test_vocabulary_and_vectors_come_from_the_training_part_alone():
    corpus, vocabulary, vectors = trials.material()
    seen = {token for article in corpus.train for token in tokenize(article.text)}
    assert set(vocabulary.words[2:]) <= seen
    assert vectors.shape == (len(vocabulary), 64) == (8000, 64)


def test_passages_of_training_and_test_come_from_different_articles():
    parts = [trials.passages(part) for part in ("train", "dev", "test")]
    texts = [{tuple(text) for text in [*part.background, *(source.tokens for source in part.sources)]} for part in parts]
    assert sum(map(len, texts)) == len(set.union(*texts))
    assert [len(part.sources) for part in parts] == [1136, 160, 325]


EXPERIMENTS = Path(__file__).parents[3] / "experiments"


@pytest.mark.parametrize("longest", [200, 800])
@pytest.mark.parametrize("network", READERS)
def test_the_saved_results_have_every_length_and_position_from_three_seeds(network, longest):
    table = records.read(EXPERIMENTS / "long_documents.csv")
    cells = records.select(table, network=network, longest=longest, steps=1000, part="test")
    expected = set(product(trials.LENGTHS, trials.POSITIONS, (0, 1, 2)))
    assert len(cells) == len(expected)
    assert set(zip(cells["length"], cells["position"], cells["seed"], strict=True)) == expected
    assert cells["lr"].nunique() == 1  # chosen once, before the test


@pytest.mark.parametrize("task", trials.TASKS)
def test_the_saved_ablation_has_every_layer_from_five_seeds(task):
    table = records.select(records.read(EXPERIMENTS / "projections.csv"), task=task, part="test")
    steps = table["steps"].max()
    for projections, bias in (("all", False), ("all", True), ("shared", False), ("none", False)):
        rows = records.select(table, projections=projections, bias=bias, steps=steps)
        assert sorted(rows["seed"]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["long_documents.csv", "projections.csv"])
def test_the_test_part_is_touched_only_with_the_learning_rate_that_was_best_on_the_dev_part(name):
    table = records.read(EXPERIMENTS / name)
    kinds = [column for column in ("network", "task", "projections", "bias") if column in table]
    for _, rows in table.groupby(kinds):
        dev = rows[rows["part"] == "dev"].groupby("lr")["accuracy"].mean()
        assert set(rows.loc[rows["part"] == "test", "lr"]) == {dev.idxmax()}
        assert len(dev) >= 2
