"""The tasks about places: each answer is where the task says, longer tests are fair, and a run tells what was really done."""

import math
from itertools import islice

import numpy as np
import pandas as pd
import pytest
import torch

from lib.study import positions, positions_longer, positions_loudness
from lib.study.positions import SCORED, START, TRAINED, UNSCORED, draw_batches, make_model, score, stretched
from lib.study.positions_rates import best_rates
from lib.study.training import seed_everything

SYNTHETIC = ("three back", "latest", "mirror", "place")


def drawn(task, L=40, B=6, seed=3, part="train"):
    batch = next(draw_batches(task, seed, L=L, B=B, part=part))
    assert batch.tokens.shape == batch.labels.shape == (B, L)
    assert (batch.lengths == L).all()
    return batch.tokens.tolist(), batch.labels.tolist()


def test_three_back_asks_for_the_token_three_places_before():
    for tokens, labels in zip(*drawn("three back"), strict=True):
        assert labels[:3] == [UNSCORED] * 3
        assert labels[3:] == tokens[:-3]


def test_latest_asks_for_the_last_token_with_the_same_letter():
    asked = 0
    for tokens, labels in zip(*drawn("latest"), strict=True):
        for place, label in enumerate(labels):
            letter = (tokens[place] - 1) // positions.DIGITS
            before = [token for token in tokens[1:place] if (token - 1) // positions.DIGITS == letter]
            assert label == (before[-1] if place and before else UNSCORED)
            asked += bool(before)
    assert asked > 150


def test_in_latest_the_nearest_mention_differs_from_most_others():
    tokens, labels = drawn("latest", L=128)
    agree = total = 0
    for row, wanted in zip(tokens, labels, strict=True):
        letter = (row[-1] - 1) // positions.DIGITS
        others = [token for token in row[1:-1] if (token - 1) // positions.DIGITS == letter]
        agree, total = agree + others.count(wanted[-1]), total + len(others)
    assert agree / total < 0.5  # a blend of all mentions does not answer


def test_mirror_asks_for_the_token_at_the_other_end():
    for tokens, labels in zip(*drawn("mirror"), strict=True):
        assert labels == tokens[::-1]


@pytest.mark.parametrize("task", ["three back", "latest", "text", "place"])
def test_causal_tasks_begin_with_a_start_that_comes_nowhere_else(task):
    for row in drawn(task)[0]:
        assert row[0] == START
        assert START not in row[1:]


def test_text_asks_for_the_next_character_and_for_the_same_ones_at_every_length():
    short, long = (next(draw_batches("text", 5, L=L, part="dev", B=8)) for L in (32, 128))
    assert torch.equal(short.tokens[:, 1:], short.labels[:, :-1])
    assert torch.equal(short.labels[:, -SCORED:], long.labels[:, -SCORED:])
    assert torch.equal(short.tokens[:, 1:], long.tokens[:, -31:])


@pytest.mark.parametrize("task", positions.TASKS)
def test_tokens_and_answers_fit_the_vocabulary_at_the_longest_test(task):
    batch = next(draw_batches(task, 0, B=64, L=128))
    size = positions.TASKS[task].vocab_size
    assert batch.tokens.min() >= 0
    assert batch.tokens.max() < size
    answers = batch.labels[batch.labels != UNSCORED]
    assert answers.min() >= 0
    assert answers.max() < size


@pytest.mark.parametrize("task", SYNTHETIC)
def test_parts_and_seeds_draw_different_sequences_and_one_seed_the_same(task):
    first, again = drawn(task), drawn(task)
    assert first == again
    assert first[0] != drawn(task, seed=4)[0]
    assert first[0] != drawn(task, part="test")[0]


class Oracle(torch.nn.Module):
    """Answers "three back" rightly at some places and with START elsewhere, which is always wrong there."""

    def __init__(self, right):
        super().__init__()
        self.right = right

    def forward(self, tokens):
        L = tokens.size(1)
        answers = torch.zeros_like(tokens)
        answers[:, 3:] = tokens[:, :-3]
        answers[:, ~self.right(torch.arange(L), L)] = START
        return 50.0 * torch.nn.functional.one_hot(answers, 1 + positions.SYMBOLS).float()


@pytest.mark.parametrize("L", [32, 128])
def test_the_score_looks_at_the_last_tokens_alone(L):
    at_end = score(Oracle(lambda places, L: places >= L - SCORED), "three back", L, batches=1)
    before = score(Oracle(lambda places, L: places < L - SCORED), "three back", L, batches=1)
    half = score(Oracle(lambda places, L: places >= L - SCORED // 2), "three back", L, batches=1)
    assert at_end.accuracy == 1
    assert at_end.bits < 1e-6
    assert before.accuracy == 0
    assert before.bits > 50
    assert half.accuracy == 0.5


def test_causal_tasks_get_a_model_that_looks_back_and_mirror_one_that_looks_both_ways():
    for task, looks_ahead in (("three back", False), ("mirror", True)):
        model = make_model(task, "sinusoidal").eval()
        tokens = next(draw_batches(task, 0, B=1)).tokens
        changed = tokens.clone()
        changed[0, -1] = tokens[0, -1] % positions.SYMBOLS + 1
        assert torch.equal(model(tokens)[0, 0], model(changed)[0, 0]) is not looks_ahead


# ---- runs


def quick(kind, **settings):
    return positions.run("three back", kind, **{"lr": 3e-3, "seed": 0, "steps": 3, "lengths": (32, 64), **settings})


@pytest.mark.parametrize("kind", positions.KINDS)
def test_a_run_gives_two_rows_of_the_dev_part_and_one_for_each_length(kind):
    rows = quick(kind)
    found = [(row["kind"], row["part"], row["length"]) for row in rows]
    expected = [(kind, "dev", 32), (kind, "dev", 128), (kind, "test", 32), (kind, "test", 64)]
    assert found == expected + [("learned, interpolated", "test", 64)] * (kind == "learned")
    assert {(row["task"], row["steps"], row["lr"], row["seed"]) for row in rows} == {("three back", 3, 3e-3, 0)}
    assert all(0 <= row["accuracy"] <= 1 and row["bits"] > 0 for row in rows)


def test_the_same_seed_gives_the_same_rows_and_another_does_not():
    assert quick("rotary") == quick("rotary")
    assert quick("rotary")[0]["train_loss"] != quick("rotary", seed=1)[0]["train_loss"]


def test_training_at_32_tokens_leaves_the_later_rows_of_a_learned_table_alone():
    seed_everything(0)
    model = make_model("three back", "learned")
    before = model.embedding.positions.weight.detach().clone()
    positions.train(model, "three back", lr=3e-3, seed=0, steps=5)
    after = model.embedding.positions.weight
    assert torch.equal(after[TRAINED:], before[TRAINED:])
    assert (after[:TRAINED] != before[:TRAINED]).all(dim=1).all()


def test_a_short_training_learns_and_notes_when_it_was_90_percent_right():
    seed_everything(0)
    model = make_model("three back", "rotary")
    facts = positions.train(model, "three back", lr=1e-2, seed=0, steps=150)
    assert facts["steps_to_90"] in range(25, 151, 25)
    assert score(model, "three back", 32).accuracy > 0.9
    assert positions.train(make_model("three back", "rotary"), "three back", lr=1e-2, seed=0, steps=3)["steps_to_90"] is None


@pytest.mark.parametrize("task", ["three back", "mirror"])
def test_a_stretched_model_has_the_first_rows_interpolated_and_all_else_as_it_was(task):
    model = make_model(task, "learned").eval()
    twin = stretched(model, 63)
    old, new = model.embedding.positions.weight, twin.embedding.positions.weight
    assert new.shape == (63, positions.WIDTH)
    assert torch.allclose(new[::2], old[:TRAINED], atol=1e-5)
    assert torch.allclose(new[1::2], (old[: TRAINED - 1] + old[1:TRAINED]) / 2, atol=1e-5)
    others = {name: weight for name, weight in model.state_dict().items() if "positions" not in name}
    assert all(torch.equal(weight, twin.state_dict()[name]) for name, weight in others.items())
    assert len(old) == 128  # the model itself is left alone


# ---- to 128 tokens


@pytest.mark.parametrize("way", positions_longer.WAYS)
def test_each_way_to_128_tokens_is_tested_before_and_after_more_steps(way):
    rows = positions_longer.run("mirror", way, lr=3e-3, seed=0, steps=2, more=(0, 2, 4))
    assert [(row["way"], row["more_steps"], row["length"]) for row in rows] == [(way, more, 128) for more in (0, 2, 4)]
    assert len({row["bits"] for row in rows}) == 3  # it went on training


def test_steps_need_not_be_multiples_of_the_first_ones():
    rows = positions_longer.run("mirror", "sinusoids", lr=3e-3, seed=0, steps=2, more=(0, 2, 3))
    assert [row["more_steps"] for row in rows] == [0, 2, 3]
    assert rows[-1] == positions_longer.run("mirror", "sinusoids", lr=3e-3, seed=0, steps=2, more=(0, 3))[-1]


def test_the_ways_begin_with_the_table_that_they_say():
    trained = positions_longer.start("three back", "new rows", 3e-3, 0, 2)
    interpolated = positions_longer.start("three back", "interpolated", 3e-3, 0, 2)
    fresh = positions_longer.start("three back", "from the start", 3e-3, 0, 2)
    tables = [model.embedding.positions.weight for model in (trained, interpolated, fresh)]
    assert torch.equal(tables[1][0], tables[0][0])
    assert torch.equal(tables[1][-1], tables[0][31])
    assert not torch.equal(tables[0][:32], tables[2][:32])
    assert torch.equal(tables[0][32:], tables[2][32:])  # the random rows of the same seed
    assert positions_longer.start("three back", "sinusoids", 3e-3, 0, 2).config.positional == "sinusoidal"


def test_going_on_leaves_the_model_that_others_begin_with_as_it_was():
    before = positions_longer.run("three back", "new rows", lr=3e-3, seed=0, steps=2, more=(0,))
    positions_longer.run("three back", "new rows", lr=3e-3, seed=0, steps=2, more=(0, 3))
    assert positions_longer.run("three back", "new rows", lr=3e-3, seed=0, steps=2, more=(0,)) == before


# ---- loudness


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
@pytest.mark.parametrize("ratio", positions_loudness.RATIOS)
def test_the_ratio_of_loudness_is_what_was_asked_for(kind, ratio):
    torch.manual_seed(0)
    model = make_model("three back", kind)
    positions_loudness.set_ratio(model, ratio)
    words, places = positions_loudness.loudness(model, 32)
    assert places / words == pytest.approx(ratio, rel=0.1)
    assert 0.65 < max(words, places) < 1.1  # the louder one keeps its usual size


def test_the_usual_ratio_is_that_of_the_library():
    torch.manual_seed(0)
    words, places = positions_loudness.loudness(make_model("three back", "sinusoidal"), 32)
    assert words == pytest.approx(1.0, rel=0.1)
    assert places == pytest.approx(positions_loudness.USUAL, rel=1e-5)


def test_scaled_positions_are_the_encoding_times_the_factor():
    encoding = make_model("three back", "sinusoidal").embedding.positions
    x = torch.randn(2, 5, positions.WIDTH)
    where = torch.tensor([[0, 0, 1, 2, 3], [4, 5, 6, 7, 8]])
    louder = positions_loudness.Scaled(encoding, 3.0)
    assert torch.allclose(louder(x, positions=where) - x, 3 * (encoding(x, positions=where) - x), atol=1e-5)


def test_a_run_of_loudness_gives_one_row():
    row = positions_loudness.run("latest", "learned", 0.02, lr=3e-3, seed=0, steps=3)
    assert {name: row[name] for name in ("task", "kind", "ratio", "lr", "seed", "steps")} == {
        "task": "latest", "kind": "learned", "ratio": 0.02, "lr": 3e-3, "seed": 0, "steps": 3,
    }  # fmt: skip
    assert 0.02 < row["ratio_after"] < 0.2  # three steps of Adam made the positions louder
    assert np.isfinite([row["bits"], row["dev_bits"]]).all()


def test_the_text_of_the_parts_is_not_the_same():
    stretches = {part: next(draw_batches("text", 0, part=part, B=4)).tokens.tolist() for part in positions.PARTS}
    assert stretches["train"] != stretches["dev"] != stretches["test"]
    assert len(list(islice(draw_batches("text", 0), 2))) == 2


# ---- the choice of a learning rate


def table_of(*rows):
    """Dev rows of one seed: (task, kind, lr, accuracy and bits at 32, accuracy and bits at 128)."""
    return pd.DataFrame(
        {"task": task, "kind": kind, "lr": lr, "seed": 0, "part": "dev", "length": length, "accuracy": accuracy, "bits": bits}
        for task, kind, lr, *scores in rows
        for length, accuracy, bits in ((32, *scores[:2]), (128, *scores[2:]))
    )


def rate_of(table, length, task="latest", kind="rotary"):
    return best_rates(table, length).set_index(["task", "model"])["lr"][task, kind]


def test_near_the_bits_decide_and_far_the_accuracy():
    table = table_of(
        ("latest", "rotary", 0.001, 1.0, 0.02, 0.7, 9.0),
        ("latest", "rotary", 0.01, 1.0, 0.01, 0.1, 4.0),
        ("text", "rotary", 0.001, 0.4, 3.01, 0.3, 4.0),
        ("text", "rotary", 0.01, 0.5, 3.0, 0.4, 4.5),
    )
    assert rate_of(table, 32) == 0.01
    assert rate_of(table, 128) == 0.001
    assert rate_of(table, 32, "text") == 0.01
    assert rate_of(table, 128, "text") == 0.001


def test_a_rate_that_fails_near_is_not_chosen_for_what_it_does_far():
    table = table_of(
        ("latest", "rotary", 0.001, 0.78, 0.8, 0.06, 5.0),
        ("latest", "rotary", 0.01, 0.22, 3.2, 0.08, 4.0),
        ("text", "rotary", 0.001, 0.4, 3.2, 0.3, 4.0),
        ("text", "rotary", 0.01, 0.5, 3.0, 0.4, 4.5),
    )
    assert rate_of(table, 128) == 0.001
    assert rate_of(table, 128, "text") == 0.01


def test_other_seeds_parts_and_interpolated_tables_have_no_say():
    table = table_of(("mirror", "learned", 0.001, 1.0, 0.02, 0.7, 9.0), ("mirror", "learned", 0.01, 1.0, 0.01, 0.1, 4.0))
    other = table.assign(bits=-table["lr"] * 1000, accuracy=1.0)
    others = [other.assign(seed=1), other.assign(part="test"), other.assign(part="test", kind="learned, interpolated")]
    assert rate_of(pd.concat([table, *others], ignore_index=True), 128, "mirror", "learned") == 0.001


def test_the_rate_that_is_soonest_right_is_chosen_and_bits_decide_where_none_is():
    runs = pd.DataFrame({"lr": [1e-3, 3e-3, 1e-2], "steps_to_90": [None, 175.0, 100.0], "dev_bits": [0.001, 0.002, 0.003]})
    assert positions_loudness.best_rate(runs) == 1e-2
    assert positions_loudness.best_rate(runs.assign(steps_to_90=math.nan)) == 1e-3
    assert positions_loudness.best_rate(runs.assign(steps_to_90=[50.0, 75.0, 50.0], dev_bits=[0.3, 0.1, 0.2])) == 1e-2
