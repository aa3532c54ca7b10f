"""The modes in which a module is looked at, and how it is left as it was found."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Mode:
    """Train or eval, with or without gradients. Dropout is 0 unless asked for."""

    training: bool
    gradients: bool
    dropout: bool = False

    def __str__(self) -> str:
        words = [
            "train" if self.training else "eval",
            "own dropout" if self.dropout else "",
            "" if self.gradients else "no gradients",
        ]
        return ", ".join(filter(None, words))


MODES = tuple(Mode(training, gradients) for training in (True, False) for gradients in (True, False))
WITH_DROPOUT = Mode(training=True, gradients=True, dropout=True)


@contextmanager
def as_found(module: nn.Module, x: Tensor) -> Iterator[None]:
    """Put back whatever the runs change: parameters, buffers and the state of the random numbers."""
    kept = [
        (store, name, tensor, tensor.detach().clone())
        for part in module.modules()
        for store in (part._parameters, part._buffers)
        for name, tensor in store.items()
        if tensor is not None
    ]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if x.is_cuda else []):
        try:
            yield
        finally:
            for store, name, tensor, saved in kept:
                store[name] = tensor
                if not torch.equal(tensor, saved):  # a copy is a change too, to graphs that hold the tensor
                    with torch.no_grad():
                        tensor.copy_(saved)


@contextmanager
def in_mode(module: nn.Module, mode: Mode) -> Iterator[None]:
    """The module in one mode, and afterwards in those of before."""
    before = {part: part.training for part in module.modules()}
    try:
        module.train(mode.training)
        with torch.set_grad_enabled(mode.gradients), dropout_at(module, None if mode.dropout else 0.0):
            yield
    finally:
        for part, training in before.items():
            part.training = training


def dropouts(module: nn.Module) -> Iterator[tuple[object, str, float]]:
    """Where a module keeps its probabilities of dropping: owner, attribute, value. Its configuration counts too."""
    seen = set()
    for part in module.modules():
        for owner in (part, getattr(part, "config", None)):
            if owner is None or id(owner) in seen or not hasattr(owner, "__dict__"):
                continue
            seen.add(id(owner))
            for name, value in vars(owner).items():
                named = name in ("p", "dropout")
                number = type(value) is float or (type(value) is int and named)
                if number and 0 <= value <= 1 and (named or "drop" in name):
                    yield owner, name, value


@contextmanager
def dropout_at(module: nn.Module, p: float | None) -> Iterator[None]:
    """Every probability of dropping at p, or as it is where p is None."""
    found = list(dropouts(module)) if p is not None else []
    try:
        for owner, name, _ in found:
            vars(owner)[name] = p  # past `setattr`, since a configuration may be frozen
        yield
    finally:
        for owner, name, value in found:
            vars(owner)[name] = value


def seed_all(x: Tensor, seed: int) -> None:
    """Seed what draws random numbers for a module on x's device, and nothing else."""
    torch.default_generator.manual_seed(seed)
    if x.is_cuda:
        torch.cuda.manual_seed_all(seed)
