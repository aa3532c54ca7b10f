"""Exercise 6: the reader writes the check. Does an attention that should be causal let the future through, in any mode?"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lib.study.exercises import Case, Exercise, Mistake, random_tensor
from lib.study.exercises.masks.truth import as_numbers
from lib.study.mask_faults import AFTER, FAST_PATH, NO_CAUSAL, NONE, NOT_IN_EVAL, ONE_TOO_FAR, MaskedAttention

WIDTH, LENGTH = 8, 6
NOT_IN_TRAINING = "causal in eval mode only"


class Planted(nn.Module):
    """A causal attention with a fault: x (B, L, d_model) -> (B, L, d_model)."""

    def __init__(self, fault: str):
        super().__init__()
        state = torch.get_rng_state()
        torch.manual_seed(0)
        self.attention, self.fault = MaskedAttention(WIDTH, 2, NONE if fault == NOT_IN_TRAINING else fault), fault
        torch.set_rng_state(state)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, d_model) -> the same shape."""
        return self.attention(x, causal=not (self.fault == NOT_IN_TRAINING and self.training))[0]

    def __repr__(self) -> str:
        return "without a fault" if self.fault == NONE else f"with the fault '{self.fault}'"


def _cases() -> list[Case]:
    x = random_tensor(2, LENGTH, WIDTH, seed=60)
    faults = (NONE, NO_CAUSAL, ONE_TOO_FAR, NOT_IN_EVAL, NOT_IN_TRAINING, FAST_PATH, AFTER)
    return [{"attention": Planted(fault), "x": x} for fault in faults]


def _moved(attention: nn.Module, x: Tensor, *, changed: slice = slice(LENGTH // 2, None), kept: slice | None = None) -> bool:
    """Whether the outputs in `kept` move when the tokens in `changed` do."""
    kept = slice(None, LENGTH // 2) if kept is None else kept
    other = x.clone()
    other[:, changed] = other[:, changed] + 1.0
    return not torch.allclose(attention(x)[:, kept], attention(other)[:, kept], atol=1e-6)


def _in_modes(*modes: tuple[bool, bool], moved: Callable[..., bool] = _moved):
    """A check in some modes, each (training, gradients)."""

    def leaks(attention: nn.Module, x: Tensor) -> bool:
        found = False
        for training, gradients in modes:
            attention.train(training)
            with torch.set_grad_enabled(gradients):
                found = found or moved(attention, x)
        return found

    return as_numbers(leaks)


_ALL = ((True, True), (False, True), (False, False))

LEAKS = Exercise(
    hint="Change x from some position on, run both, and compare the outputs before that position. Do it in training mode, in "
    "eval mode, and under torch.no_grad().",
    why="A test that runs a module in one mode says nothing of the others, and it is the last of them that users run.",
    shapes="attention(x) takes (B, L, d_model) and returns the same shape. Compare output[:, :t], the positions before t.",
    next_step="The sound attention must give False and every planted one True: print what moves, in each mode.",
    right=_in_modes(*_ALL),
    cases=_cases,
    mistakes=(
        Mistake(
            _in_modes((True, True)),
            "You look in one mode alone, training mode. Call attention.eval() too, and look once more under torch.no_grad().",
        ),
        Mistake(
            _in_modes((True, True), (False, True)),
            "Training and eval mode are there. Models are used under torch.no_grad(), and code may branch on that.",
        ),
        Mistake(
            _in_modes((False, True)),
            "You look in eval mode alone. Look in training mode too, and once more under torch.no_grad().",
        ),
        Mistake(
            _in_modes((False, True), (False, False)),
            "Eval mode is there, with gradients or without. Call attention.train() too: what leaks there spoils the training.",
        ),
        Mistake(
            _in_modes(*_ALL, moved=lambda a, x: _moved(a, x, changed=slice(LENGTH - 1, None), kept=slice(None, 2))),
            "You look too far from the change: a mask that lets through one step moves its neighbor only. Compare all "
            "positions before the change.",
        ),
        Mistake(
            _in_modes(*_ALL, moved=lambda a, x: _moved(a, x, kept=slice(None))),
            "A sound attention fails your check. Outputs at the changed positions and after them move by right: compare those "
            "before them alone.",
        ),
        Mistake(
            as_numbers(lambda attention, x: attention(x).shape != x.shape),
            "Your check finds nothing, not even in an attention without a causal mask. Shapes say nothing about masks: change "
            "later tokens, and look whether earlier outputs move.",
        ),
    ),
)
