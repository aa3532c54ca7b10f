"""The recall task and its runs: the task is what it says, both arms start alike, NaN comes and stays away where A12 says."""

import math

import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from lib.attention import scaled_dot_product_attention
from lib.study import records
from lib.study.recall import KEYS, PAIRS, VALUES, WINDOW, Question, Recall, Run, questions, textbook_attention, train
from tests.lib.study.scripts import load_script


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_each_question_asks_for_one_of_its_different_keys_and_is_answered_by_the_value_beside_it():
    question = next(questions(seed=1, batch_size=200))
    assert question.keys.shape == question.values.shape == (200, PAIRS)
    for keys, values, asked, answer in zip(*(part.tolist() for part in question), strict=True):
        assert len(set(keys)) == PAIRS
        assert values[keys.index(asked)] == answer
        assert 0 <= min(keys) <= max(keys) < KEYS
        assert 0 <= min(values) <= max(values) < VALUES


def test_questions_repeat_with_their_seed_alone():
    first, again, other = (next(questions(seed)) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.keys, other.keys)


def test_neither_the_asked_key_nor_the_commonest_value_gives_the_answer_away():
    question = next(questions(seed=2, batch_size=20_000))
    by_key = torch.zeros(KEYS, VALUES).index_put_((question.asked, question.answer), torch.ones(()), accumulate=True)
    assert by_key.max(dim=1).values.sum() / 20_000 < 1.5 / VALUES
    assert (question.values.mode(dim=1).values == question.answer).float().mean() < 0.3


@pytest.mark.parametrize("d_k", [16, 256])
@pytest.mark.parametrize("scaled", [True, False])
def test_queries_and_keys_start_with_unit_parts_so_scores_have_variance_1_or_d_k(d_k, scaled):
    calls = []

    def listen(query, key, value, *, scale, need_weights):
        calls.append((query.detach(), key.detach(), 1 / math.sqrt(d_k) if scale is None else scale))
        return value, value

    for seed in range(20):
        torch.manual_seed(seed)
        Recall(d_k, scaled=scaled, attention=listen)(next(questions(seed)))
    query, key = (torch.cat([call[i] for call in calls]) for i in (0, 1))
    scores = torch.cat([q @ k.mT * factor for q, k, factor in calls])
    assert query.var().item() == pytest.approx(1, rel=0.15)
    assert key.var().item() == pytest.approx(1, rel=0.15)
    assert scores.var().item() == pytest.approx(1 if scaled else d_k, rel=0.35)


def test_order_of_the_pairs_does_not_matter_and_the_asked_key_does():
    torch.manual_seed(0)
    model, question = Recall(8), next(questions(seed=5))
    order = torch.randperm(PAIRS)
    shuffled = Question(question.keys[:, order], question.values[:, order], question.asked, question.answer)
    assert_close(model(shuffled)[0], model(question)[0])
    other = question._replace(asked=question.keys[:, 0])
    assert not torch.allclose(model(other)[0], model(question)[0])


def test_both_arms_start_from_the_same_weights_and_questions():
    scaled, unscaled = (train(64, 0.0, scaled=s, seed=7, optimizer="sgd", steps=3) for s in (True, False))
    torch.manual_seed(7)
    model = Recall(64, scaled=False)
    question = next(questions(7))
    logits, _ = model(question)
    assert torch.nn.functional.cross_entropy(logits, question.answer).item() == pytest.approx(unscaled.losses[0], abs=1e-6)
    # With equal weights the scores differ by √d_k alone, which sharpens the softmax.
    assert unscaled.entropies[0] < scaled.entropies[0] - 1
    model.scale = None
    logits, _ = model(question)
    assert torch.nn.functional.cross_entropy(logits, question.answer).item() == pytest.approx(scaled.losses[0], abs=1e-6)


def test_a_run_repeats_and_leaves_the_global_generator_alone():
    torch.manual_seed(11)
    state = torch.get_rng_state()
    first, again, other = (train(16, 1e-2, scaled=True, seed=seed, steps=5) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert first == again
    assert first.losses != other.losses


def test_with_the_scale_the_task_is_learned_and_without_it_at_the_same_rate_it_is_not():
    scaled, unscaled = (train(256, 1e-2, scaled=s, seed=0) for s in (True, False))
    assert scaled.steps_to(0.9) == len(scaled.losses) < 150
    assert unscaled.steps_to(0.9) is None
    assert sum(unscaled.accuracies[-WINDOW:]) / WINDOW < 0.7
    assert all(map(math.isfinite, unscaled.losses))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_rate_that_is_far_too_large_ends_in_a_noted_nan_with_and_without_the_scale(precision):
    for scaled in (True, False):
        run = train(16, 100.0, scaled=scaled, seed=0, optimizer="sgd", precision=precision)
        assert run.nan_step is not None
        assert run.nan_step == len(run.losses) + 1 < 50
        assert all(map(math.isfinite, run.losses))


def test_adam_in_float16_gives_nan_at_once_with_the_scale_too_as_its_epsilon_rounds_to_zero():
    assert torch.tensor(1e-8).half() == 0
    for scaled in (True, False):
        assert train(16, 1e-3, scaled=scaled, seed=0, precision="float16", attention=textbook_attention).nan_step == 2


def test_steps_to_is_the_first_step_whose_window_has_reached_the_accuracy():
    run = Run(accuracies=[0.0] * 10 + [1.0] * 30)
    assert run.steps_to(0.5) == 20
    assert run.steps_to(0.9) == 28
    assert run.steps_to(1.0) == 30
    assert Run(accuracies=[1.0] * (WINDOW - 1)).steps_to(0.1) is None
    assert Run(accuracies=[0.1] * 50).steps_to(0.9) is None


# ---- by which way NaN comes, and by which it does not


def test_the_textbook_form_is_the_library_s_in_float32():
    q, k, v = torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 3)
    for scale in (None, 1.0, 0.3):
        wanted = scaled_dot_product_attention(q, k, v, scale=scale, need_weights=True)
        assert_close(textbook_attention(q, k, v, scale=scale, need_weights=True), wanted)
        assert_close(textbook_attention(q, k, v, scale=scale), wanted[0])


def test_saturated_scores_give_zero_gradients_and_no_nan_in_any_precision():
    for dtype, size in ((torch.float32, 1e30), (torch.bfloat16, 1e30), (torch.float16, 6e4)):
        scores = (torch.linspace(-1, 1, 9) * size).to(dtype).requires_grad_()
        weights = scores.softmax(dim=-1)
        (weights * torch.arange(9, dtype=dtype)).sum().backward()
        assert weights.tolist() == [0.0] * 8 + [1.0]
        assert torch.equal(scores.grad, torch.zeros(9, dtype=dtype))


def test_a_float16_product_past_65504_is_nan_in_the_textbook_form_scaled_or_not_and_sound_in_the_library():
    x = torch.full((2, 1024), 8.0, dtype=torch.float16)  # 8 · 8 · 1024 = 65536
    value = torch.tensor([[1.0], [3.0]], dtype=torch.float16)
    for scale in (None, 1.0):
        assert textbook_attention(x, x, value, scale=scale).isnan().all()
        assert_close(scaled_dot_product_attention(x, x, value, scale=scale, backend="eager"), torch.full_like(value, 2.0))
    assert textbook_attention(x / 2, x / 2, value).isfinite().all()
    assert textbook_attention(x.bfloat16(), x.bfloat16(), value.bfloat16()).isfinite().all()


def test_a_row_of_minus_infinity_is_nan_by_softmax_and_zero_in_the_library():
    mask = torch.tensor([[True, True], [False, False]])
    x = torch.randn(2, 4)
    assert torch.zeros(2, 2).masked_fill(~mask, -torch.inf).softmax(-1)[1].isnan().all()
    assert scaled_dot_product_attention(x, x, x, mask)[1].tolist() == [0.0] * 4


# ---- the experiment's results


@pytest.fixture(scope="module")
def experiment():
    return load_script("experiments/scale.py")


@pytest.fixture(scope="module")
def results(experiment):
    return pd.read_csv(experiment.RESULTS)


def test_the_results_hold_each_run_of_the_experiment_once_with_its_origin(experiment, results):
    assert list(results.columns) == [*experiment.SETTING, *experiment.RESULT, *records.stamp()]
    have = [tuple(map(str, row)) for row in results[experiment.SETTING].itertuples(index=False)]
    assert len(have) == len(set(have))
    assert set(have) == {tuple(map(str, setting)) for setting in experiment.settings()}
    assert results[list(records.stamp())].notna().all(axis=None)


def test_the_results_agree_with_themselves(experiment, results):
    ended = results["steps_to_90"].notna().astype(int) + results["nan_step"].notna() + (results["steps"] == results["limit"])
    assert (ended >= 1).all()
    reached = results[results["steps_to_90"].notna() & (results["goal"] != experiment.NO_GOAL)]
    assert (reached["steps"] == reached["steps_to_90"]).all()
    assert (reached["final_accuracy"] >= 0.9 - 1e-6).all()
    broken = results[results["nan_step"].notna()]
    assert (broken["steps"] == broken["nan_step"] - 1).all()
    assert results["entropy_start"].between(0, math.log(PAIRS)).all()


def test_a_row_that_is_run_again_gives_the_same_within_a_margin(results):
    for d_k, lr, scaled, optimizer in ((64, 1e-2, True, "adam"), (256, 1.0, True, "sgd"), (256, 1e-2, False, "adam")):
        chosen = results.query(
            f"optimizer == '{optimizer}' and precision == 'float32' and d_k == {d_k} and lr == {lr} "
            f"and scaled == {scaled} and seed == 0 and limit == 300 and goal != 'none'"
        )
        row = chosen.squeeze()
        run = train(d_k, lr, scaled=scaled, seed=0, optimizer=optimizer)
        assert run.entropies[0] == pytest.approx(row["entropy_start"], rel=1e-2)
        assert run.query_gradient == pytest.approx(row["query_gradient"], rel=1e-2)
        if scaled:
            assert run.steps_to(0.9) == pytest.approx(row["steps_to_90"], rel=0.25)
        else:
            assert math.isnan(row["steps_to_90"])
            assert run.steps_to(0.9) is None
