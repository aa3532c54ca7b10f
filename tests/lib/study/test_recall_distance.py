"""The recall task over distance: the task is what it says, each form sees what it may, and the results hold every run."""

from itertools import islice

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from lib import masks
from lib.attention import scaled_dot_product_attention
from lib.study import recall_distance, records
from lib.study.recall_distance import EDGES, FORMS, KEYS, QUESTIONS, VALUES, RecallNet, draw, score, training_batches
from tests.lib.study.scripts import load_script


@pytest.mark.parametrize(("L", "pairs"), [(16, 8), (64, 32), (256, 128), (264, 256)])
def test_each_question_is_answered_by_the_value_beside_its_key_at_the_distance_given(L, pairs):
    batch, distances = draw(np.random.default_rng(0), 5, L, pairs)
    assert batch.tokens.shape == (5, L, 2)
    assert batch.labels.shape == distances.shape == (5, QUESTIONS)
    assert batch.lengths.tolist() == [L] * 5
    for tokens, labels, far in zip(batch.tokens.tolist(), batch.labels.tolist(), distances.tolist(), strict=True):
        keys, values = zip(*tokens, strict=True)
        room = L - QUESTIONS
        assert sum(key > 0 for key in keys[:room]) == pairs
        assert len(set(keys[:room]) - {0}) == pairs
        assert all(1 <= value <= VALUES for value in values[:room])
        assert values[room:] == (0,) * QUESTIONS
        assert len(set(keys[room:])) == QUESTIONS
        for place in range(room, L):
            pair = keys.index(keys[place])
            assert pair < room
            assert labels[place - room] == values[pair] - 1
            assert far[place - room] == place - pair


@pytest.mark.parametrize(("L", "pairs"), [(64, 7), (64, 57), (512, KEYS + 1)])
def test_numbers_of_pairs_without_room_are_refused(L, pairs):
    with pytest.raises(ValueError, match=f"at length {L}, got {pairs}"):
        draw(np.random.default_rng(0), 1, L, pairs)


def test_near_and_far_are_asked_alike_and_other_pairs_lie_anywhere():
    batch, distances = draw(np.random.default_rng(1), 2000, 256, 16)
    share = np.histogram(distances.numpy(), bins=np.array(EDGES) + 0.5)[0] / distances.numel()
    assert share.sum() == pytest.approx(1)
    assert (share[1:] > 0.1).all()
    assert share[1:].max() < 2 * share[1:].min()
    asked = (batch.tokens[:, :-QUESTIONS, :1] == batch.tokens[:, None, -QUESTIONS:, 0]).any(dim=-1)
    others = (batch.tokens[:, :-QUESTIONS, 0] > 0) & ~asked
    halves = others[:, :124].sum().item(), others[:, 124:].sum().item()
    assert halves[0] == pytest.approx(halves[1], rel=0.25)  # a few near places are taken already


def test_neither_the_key_nor_a_place_nor_the_commonest_value_gives_the_answer_away():
    batch, _ = draw(np.random.default_rng(2), 4000, 64, 8)
    asked, labels = batch.tokens[:, -QUESTIONS:, 0].flatten(), batch.labels.flatten()
    by_key = torch.zeros(KEYS + 1, VALUES).index_put_((asked, labels), torch.ones(()), accumulate=True)
    assert by_key.max(dim=1).values.sum() / labels.numel() < 2 / VALUES
    for place in (0, -QUESTIONS - 1):
        assert (batch.tokens[:, place, 1:] - 1 == batch.labels).float().mean() < 2 / VALUES
    commonest = batch.tokens[:, :-QUESTIONS, 1].mode(dim=1, keepdim=True).values - 1
    assert (commonest == batch.labels).float().mean() < 2.5 / VALUES


def test_training_batches_repeat_with_their_seed_and_differ_from_those_of_the_tests():
    first, again, other = (list(islice(training_batches(seed), 6)) for seed in (3, 3, 4))
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(first, again, strict=True))
    assert not all(
        a.tokens.shape == b.tokens.shape and torch.equal(a.tokens, b.tokens) for a, b in zip(first, other, strict=True)
    )
    assert {batch.tokens.shape[:2].numel() for batch in first} == {recall_distance.TOKENS}


def test_half_of_the_heads_see_near_and_half_see_far():
    q, k, v = torch.randn(3, 2, 4, 50, 8)
    stride = recall_distance.STRIDE
    for heads, mask in ((slice(2), masks.sliding_window(50, stride)), (slice(2, 4), masks.strided(50, stride))):
        wanted = scaled_dot_product_attention(q[:, heads], k[:, heads], v[:, heads], mask)
        assert_close(recall_distance.window_and_stride(q, k, v)[:, heads], wanted)


def reach(form: str, L: int = 128) -> torch.Tensor:
    """(L,) boolean: which tokens have any influence on the answer to the last question."""
    torch.manual_seed(0)
    model = RecallNet(form).double()
    batch, _ = draw(np.random.default_rng(0), 1, L, 8)
    x = (model.keys(batch.tokens[..., 0]) + model.values(batch.tokens[..., 1])).detach().requires_grad_()
    model.layers(x)[0, -1].square().sum().backward()
    return x.grad[0].abs().sum(dim=-1) > 0


def test_two_layers_reach_as_far_as_their_links_lead():
    L, back = 128, torch.arange(127, -1, -1)
    for form in ("full", "window + stride", "segmented", "linear (elu)", "linear (random)"):
        assert reach(form).all(), form
    assert torch.equal(reach("windowed"), back < 2 * recall_distance.WINDOW - 1)
    assert torch.equal(reach("strided"), back % (recall_distance.STRIDE // 2) == 0)
    assert len(back) == L


@pytest.mark.parametrize("form", FORMS)
def test_no_form_looks_at_the_future(form):
    torch.manual_seed(0)
    model = RecallNet(form).eval()
    batch, _ = draw(np.random.default_rng(0), 2, 64, 8)
    changed = batch.tokens.clone()
    changed[:, -1, 0] = 1 + batch.tokens[:, -1, 0] % KEYS
    before, after = model(batch.tokens), model(changed)
    assert_close(before[:, :-1], after[:, :-1])
    assert not torch.allclose(before[:, -1], after[:, -1])


def test_a_score_counts_each_question_in_one_cell_and_repeats():
    class Knows(torch.nn.Module):
        """Right where the pair is at most 32 tokens away, else wrong."""

        def forward(self, tokens):
            keys, room = tokens[..., 0], tokens.size(1) - QUESTIONS
            place = (keys[:, None, :room] == keys[:, room:, None]).int().argmax(dim=-1)  # (B, Q)
            answer = tokens[..., 1].gather(1, place) - 1
            far = room + torch.arange(QUESTIONS) - place > 32
            return torch.nn.functional.one_hot((answer + far) % VALUES, VALUES)

    rows = pd.DataFrame(score(Knows(), 128, 8, "dev"))
    assert rows["questions"].sum() == recall_distance.TESTED * QUESTIONS
    assert rows[["nearest", "farthest"]].to_numpy().tolist() == [[1, 16], [17, 32], [33, 64], [65, 128]]
    assert rows["accuracy"].tolist() == [1, 1, 0, 0]
    assert score(Knows(), 128, 8, "dev") == rows.to_dict("records")
    assert score(Knows(), 128, 8, "test") != rows.to_dict("records")


# ---- the experiment's results


@pytest.fixture(scope="module")
def experiment():
    return load_script("experiments/recall_distance.py")


def test_the_rate_is_chosen_on_dev_questions_of_the_first_seed(experiment):
    rows = [
        {"form": "full", "part": part, "seed": seed, "lr": lr, "questions": questions, "accuracy": accuracy, "steps": 400}
        for part, seed, lr, questions, accuracy in (
            ("dev", 0, 0.1, 10, 1.0),
            ("dev", 0, 0.1, 90, 0.0),  # better on the mean of cells, worse on questions
            ("dev", 0, 0.2, 10, 0.0),
            ("dev", 0, 0.2, 90, 0.3),
            ("dev", 1, 0.1, 99, 1.0),
            ("test", 0, 0.1, 99, 1.0),
            ("test", 0, 0.2, 99, 0.2),
        )
    ]
    found = experiment.chosen(pd.DataFrame(rows))
    assert found[["part", "lr", "accuracy"]].to_numpy().tolist() == [["test", 0.2, 0.2]]


def test_the_results_hold_each_run_once_with_its_origin(experiment):
    results = pd.read_csv(experiment.RESULTS)
    runs = results.groupby(["form", "steps", "lr", "seed"])
    assert set(results["form"]) == set(FORMS)
    longer = records.select(results, steps=experiment.LONGER)
    assert set(longer["form"]) == set(experiment.LONGER_FORMS)
    assert longer.groupby("form")["lr"].nunique().eq(1).all()
    assert longer.groupby("form")["seed"].nunique().eq(len(experiment.SEEDS)).all()
    results = records.select(results, steps=experiment.STEPS)
    for form in FORMS:
        first = records.select(results, form=form, seed=experiment.SEEDS[0])
        assert set(first["lr"]) == set(experiment.RATES)
        assert set(experiment.chosen(records.select(results, form=form))["seed"]) == set(experiment.SEEDS)
    cells = ["part", "length", "pairs", "nearest"]
    assert all(not run.duplicated(cells).any() for _, run in runs)
    assert runs.size().nunique() == 1
    assert pd.read_csv(experiment.RESULTS)[list(records.stamp())].notna().all(axis=None)
