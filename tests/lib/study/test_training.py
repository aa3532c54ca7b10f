"""The training loop: it learns, repeats itself from a seed, clips, notices NaN, and keeps quiet."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from lib.study.data import Batch
from lib.study.training import accuracy, classification_loss, fit, seed_everything


class Model(nn.Module):
    """Tokens (B, 1) -> logits (B, 3), with dropout, so that the seed matters."""

    def __init__(self, dropout: float = 0.2):
        super().__init__()
        self.embedding = nn.Embedding(3, 8)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens, lengths):
        return self.head(self.dropout(self.embedding(tokens[:, 0])))


def stream(count: int = 60):
    """Batches in which the label is the token."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        labels = torch.randint(3, (16,), generator=generator)
        yield Batch(labels[:, None], torch.ones(16, dtype=torch.int64), labels)


def trained(seed: int = 0, **settings):
    seed_everything(5)
    model = Model()
    history = fit(model, stream(), lr=0.05, seed=seed, **settings)
    return model, history


def test_the_loss_falls_and_the_accuracy_reaches_one():
    model, history = trained()
    assert history.losses[0] > 0.8 > 0.2 > history.losses[-1]
    assert len(history.losses) == len(history.grad_norms) == 60
    assert accuracy(model, stream()) == 1.0


def test_the_same_seed_gives_the_same_run_bit_for_bit_and_another_does_not():
    (model, history), (again, repeated), (_, other) = trained(0), trained(0), trained(1)
    assert history == repeated
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert history.losses != other.losses


def test_seed_everything_covers_python_numpy_and_torch():
    import random

    import numpy as np

    def draw():
        seed_everything(3)
        return random.random(), np.random.rand(), torch.rand(1).item()

    assert draw() == draw()


def test_a_step_is_one_step_of_adam_on_the_clipped_gradient():
    batch = next(stream())
    seed_everything(5)
    model, reference = Model(0.0), Model(0.0)
    reference.load_state_dict(model.state_dict())
    history = fit(model, [batch], lr=0.05, seed=0, clip=0.01)

    optimizer = torch.optim.Adam(reference.parameters(), lr=0.05)
    classification_loss(reference, batch).backward()
    norm = torch.cat([p.grad.flatten() for p in reference.parameters()]).norm()
    for parameter in reference.parameters():
        parameter.grad *= 0.01 / norm
    optimizer.step()
    assert history.grad_norms == [pytest.approx(norm.item(), rel=1e-5)]
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("clip", "largest"), [(0.01, 0.01), (None, float("inf"))])
def test_clipping_bounds_the_gradient_that_reaches_the_optimizer(monkeypatch, clip, largest):
    norms = []
    step = torch.optim.Adam.step

    def spy(self, *args, **kwargs):
        norms.append(torch.cat([p.grad.flatten() for p in self.param_groups[0]["params"]]).norm().item())
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.Adam, "step", spy)
    _, history = trained(clip=clip, steps=5)
    assert min(history.grad_norms) > 0.05  # there was something to clip
    assert norms == pytest.approx([min(norm, largest) for norm in history.grad_norms], rel=1e-3)


def test_steps_end_the_run_and_no_batch_beyond_them_is_drawn():
    batches = stream(10)
    _, history = fit_on(batches, steps=4)
    assert len(history.losses) == 4
    assert len(list(batches)) == 6


def test_batches_that_run_dry_are_an_error_with_both_numbers():
    with pytest.raises(ValueError, match="after 10 of 11 steps"):
        fit_on(stream(10), steps=11)


def test_scores_come_every_so_many_steps_and_once_at_the_end_in_evaluation_mode():
    modes = []

    def evaluate(model):
        modes.append(model.training)
        return 0.5

    model, history = trained(steps=7, evaluate=evaluate, evaluate_every=3)
    assert history.scores == [(3, 0.5), (6, 0.5), (7, 0.5)]
    assert trained(steps=6, evaluate=evaluate, evaluate_every=3)[1].scores == [(3, 0.5), (6, 0.5)]
    assert trained(steps=6, evaluate=evaluate)[1].scores == [(6, 0.5)]
    assert not any(modes)
    assert not model.training


def test_looking_at_the_score_does_not_change_the_training():
    _, with_scores = trained(evaluate=lambda model: accuracy(model, stream(2)), evaluate_every=2)
    assert with_scores.losses == trained()[1].losses


def nan_at(step: int):
    """A loss that is NaN at one step, counted from 1."""
    calls = []

    def loss(model, batch):
        calls.append(0)
        return classification_loss(model, batch) * (float("nan") if len(calls) == step else 1.0)

    return loss


def test_a_nan_loss_stops_the_run_and_names_the_step():
    with pytest.raises(FloatingPointError, match="loss is nan at step 3"):
        trained(loss=nan_at(3))


def test_a_nan_loss_is_recorded_on_request_and_never_reaches_the_weights():
    model, history = trained(loss=nan_at(3), stop_on_nan=True, steps=10)
    assert history.nan_step == 3
    assert len(history.losses) == 2
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert trained(steps=10)[1].nan_step is None


def test_accuracy_counts_hits_over_examples_not_over_batches():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([0.0, 1.0]))

        def forward(self, tokens, lengths):
            assert not self.training
            return self.weight.expand(len(tokens), 2)

    def batch(*labels):
        return Batch(torch.ones(len(labels), 1, dtype=torch.int64), torch.ones(len(labels)), torch.tensor(labels))

    model = Constant()
    assert accuracy(model, [batch(1, 1, 0), batch(0)]) == 0.5
    assert model.training
    with pytest.raises(ValueError, match="no examples"):
        accuracy(model, [])


def test_nothing_is_written_where_nobody_watches():
    """In a script, piped, and in a notebook's kernel that says so by TQDM_DISABLE."""
    script = (
        "from tests.lib.study.test_training import *\n"
        "fit(Model(), stream(3), lr=0.1, seed=0)\n"
        "import os; os.environ['TQDM_DISABLE'] = '1'; sys.stderr.isatty = lambda: True\n"
        "fit(Model(), stream(3), lr=0.1, seed=0)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "")


def test_a_bar_is_shown_in_a_terminal_unless_it_is_unwanted(monkeypatch, capsys):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fit_on(stream(3), progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fit_on(stream(3))
    assert "training" in capsys.readouterr().err


def fit_on(batches, **settings):
    model = Model()
    return model, fit(model, batches, lr=0.05, seed=0, **settings)


def test_model_and_batches_move_to_the_device(device):
    model, _ = trained(device=device)
    assert next(model.parameters()).device.type == device
    assert accuracy(model, stream()) == 1.0
