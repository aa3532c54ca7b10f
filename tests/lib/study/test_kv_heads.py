"""Shared heads of key and value: what a cache holds, by the numbers, and the runs over their number."""

import pandas as pd
import pytest
import torch

from lib.study import kv_heads, records
from tests.lib.study.scripts import load_script

MODELS = {"look-ups": (kv_heads.look_up_net, 1), "text": (kv_heads.language_model, 2)}  # and their layers


@pytest.mark.parametrize("shared", [8, 4, 2, 1])
@pytest.mark.parametrize("task", MODELS)
def test_a_cache_holds_a_key_and_a_value_for_each_shared_head_and_layer(task, shared):
    make, layers = MODELS[task]
    d_head = kv_heads.WIDTH // kv_heads.HEADS
    assert kv_heads.cache_bytes(make(shared)) == 2 * layers * shared * d_head * 4
    assert kv_heads.cache_bytes(make(shared).double()) == 2 * layers * shared * d_head * 8


def test_the_cache_of_a_language_model_that_writes_is_as_large_for_each_token():
    model = kv_heads.language_model(2).eval()
    cache = model.new_cache(5)
    with torch.no_grad():
        model(torch.randint(10, (1, 5)), cache=cache)
    held = sum(one.keys.nbytes + one.values.nbytes for one in cache.self_attention)
    assert held == 5 * kv_heads.cache_bytes(model)


@pytest.mark.parametrize("task", MODELS)
def test_models_differ_in_the_heads_of_key_and_value_alone(task):
    make, layers = MODELS[task]
    sizes = {shared: sum(parameter.numel() for parameter in make(shared).parameters()) for shared in (8, 2)}
    d_head, bias = kv_heads.WIDTH // kv_heads.HEADS, task == "text"
    assert sizes[8] - sizes[2] == layers * 2 * 6 * d_head * (kv_heads.WIDTH + bias)


@pytest.mark.parametrize("task", MODELS)
def test_a_run_gives_a_row_for_each_part_and_repeats(task):
    first, again, other = (kv_heads.run(task, 2, lr=1e-3, seed=seed, steps=2) for seed in (0, 0, 1))
    assert first == again
    assert [row["part"] for row in first] == ["dev", "test"]
    assert first[0]["loss"] != first[1]["loss"]
    assert first[0]["loss"] != other[0]["loss"]
    assert all(0 <= row["accuracy"] <= 1 for row in first)


# ---- the experiment's results


@pytest.fixture(scope="module")
def experiment():
    return load_script("experiments/kv_heads.py")


def test_the_rate_is_the_one_with_the_least_loss_on_dev_of_the_first_seed(experiment):
    rows = [
        {"task": "text", "num_kv_heads": 1, "part": part, "seed": seed, "lr": lr, "loss": loss}
        for part, seed, lr, loss in (
            ("dev", 0, 0.1, 2.0),
            ("dev", 0, 0.2, 1.0),
            ("dev", 1, 0.1, 0.0),
            ("test", 0, 0.1, 0.5),
            ("test", 0, 0.2, 1.5),
        )
    ]
    assert experiment.chosen(pd.DataFrame(rows))[["part", "lr", "loss"]].to_numpy().tolist() == [["test", 0.2, 1.5]]


def test_the_results_hold_each_run_once_with_its_origin(experiment):
    results = pd.read_csv(experiment.RESULTS)
    assert set(zip(results["task"], results["steps"], strict=True)) == set(experiment.STEPS.items())
    assert not results.duplicated(["task", "num_kv_heads", "lr", "seed", "part"]).any()
    for task in experiment.STEPS:
        for shared in experiment.SHARED:
            setting = records.select(results, task=task, num_kv_heads=shared)
            assert set(records.select(setting, seed=experiment.SEEDS[0])["lr"]) == set(experiment.RATES)
            assert set(experiment.chosen(setting)["seed"]) == set(experiment.SEEDS)
            assert set(setting["cache_bytes"]) == {kv_heads.cache_bytes(MODELS[task][0](shared))}
    assert results[list(records.stamp())].notna().all(axis=None)
