"""A short training loop for the course's small models, and the accuracy that goes with it.

Shapes: B documents in the batch, L tokens in the longest of them, C classes.
"""

import os
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from lib.study.data import Batch

AnyBatch = TypeVar("AnyBatch", bound=tuple)


@dataclass
class History:
    """What a run of `fit` was like, step by step."""

    losses: list[float] = field(default_factory=list)  # one for each step
    grad_norms: list[float] = field(default_factory=list)  # one for each step, before clipping
    scores: list[tuple[int, Any]] = field(default_factory=list)  # (steps done, what `evaluate` gave)
    nan_step: int | None = None  # the step, counted from 1, whose loss was no finite number


def seed_everything(seed: int) -> None:
    """Start Python's, numpy's and torch's random numbers (on every device) from `seed`."""
    random.seed(seed)
    np.random.seed(seed)  # the global generator, which other libraries draw from
    torch.manual_seed(seed)


def classification_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross entropy of `model(tokens, lengths)`, logits (..., C), against the labels (...)."""
    logits = model(batch.tokens, batch.lengths)
    return F.cross_entropy(logits.flatten(0, -2), batch.labels.flatten())


def fit(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    lr: float,
    seed: int,
    steps: int | None = None,
    clip: float | None = 1.0,
    loss: Callable[[nn.Module, Batch], Tensor] = classification_loss,
    evaluate: Callable[[nn.Module], Any] | None = None,
    evaluate_every: int | None = None,
    stop_on_nan: bool = False,
    progress: bool = True,
    device: torch.device | str | None = None,
) -> History:
    """Train the model in place with Adam, one step for each batch.

    Args:
        model: called as `model(tokens, lengths)` by the standard loss; left in evaluation mode.
        batches: any iterable of batches; `data.batches(..., epochs=None)` never runs dry.
        lr: learning rate, the same at every step.
        seed: of the dropout and of whatever else draws in training. The weights are drawn where the model is made, the
            order of the batches where they are made: seed those too.
        steps: number of steps; as many as there are batches when not given.
        clip: the gradient's norm is scaled down to this; None leaves it as it is.
        loss: (model, batch) -> a scalar.
        evaluate: model -> what the history notes as its score, such as the accuracy on the dev part; called in evaluation mode,
            at the end of training.
        evaluate_every: call it every so many steps too.
        stop_on_nan: end at a loss that is no finite number, and note the step in the history, instead of raising.
        progress: show a bar, in a terminal or a live notebook; never where the variable TQDM_DISABLE is set.
        device: move the model and the batches there; to where the model is when not given.

    Raises:
        FloatingPointError: the loss became NaN or infinite, and at which step.
        ValueError: fewer batches than steps.
    """
    device = next(model.parameters()).device if device is None else torch.device(device)
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    history = History()
    seed_everything(seed)
    for step, batch in enumerate(bar(islice(batches, steps), steps, progress), start=1):
        model.train()
        value = loss(model, to_device(batch, device))
        if not value.isfinite():
            if not stop_on_nan:
                raise FloatingPointError(f"the loss is {value.item()} at step {step}: try a learning rate below {lr:g}.")
            history.nan_step = step
            break
        optimizer.zero_grad()
        value.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), torch.inf if clip is None else clip)
        optimizer.step()
        history.losses.append(value.item())
        history.grad_norms.append(norm.item())
        if evaluate and evaluate_every and step % evaluate_every == 0:
            history.scores.append((step, evaluate(model.eval())))
    model.eval()
    done = len(history.losses)
    if steps is not None and done < steps and history.nan_step is None:
        raise ValueError(
            f"the batches ran dry after {done} of {steps} steps: pass fewer steps, or epochs=None to data.batches."
        )
    if evaluate and (not history.scores or history.scores[-1][0] != done):
        history.scores.append((done, evaluate(model)))
    return history


@torch.no_grad()
def accuracy(model: nn.Module, batches: Iterable[Batch]) -> float:
    """Share of the labels that `model(tokens, lengths)` gives its highest logit, 0 … 1; in evaluation mode.

    Raises:
        ValueError: no batches at all.
    """
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    right = total = 0
    for batch in batches:
        batch = to_device(batch, device)
        hits = model(batch.tokens, batch.lengths).argmax(dim=-1) == batch.labels
        right, total = right + int(hits.sum()), total + hits.numel()
    model.train(was_training)
    if total == 0:
        raise ValueError("there is no accuracy over no examples: the batches are empty, or a generator that was used up.")
    return right / total


def to_device(batch: AnyBatch, device: torch.device | str) -> AnyBatch:
    """The same batch, a named tuple of tensors, on another device."""
    return type(batch)(*(part.to(device) for part in batch))


def bar(batches: Iterable[AnyBatch], steps: int | None, progress: bool, title: str = "training") -> Iterable[AnyBatch]:
    """The batches behind a progress bar, or bare where nobody watches, so that nothing reaches a log or a saved notebook."""
    watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    if progress and watched and not os.environ.get("TQDM_DISABLE"):
        return tqdm(batches, total=steps, desc=title, unit="step", leave=False)
    return batches
