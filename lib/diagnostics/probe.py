"""How a check meets the reader's module: in every mode, with the same random numbers, and without leaving a trace.

Shapes: B sequences, L tokens; x is (B, L, d_model) floats or (B, L) integer tokens; `keep` is (B, L), True = a real token.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from lib.diagnostics.modes import Mode, in_mode, seed_all
from lib.diagnostics.report import Measurement

# The largest relative error of two ways to compute the same in one dtype: sums in another order, a few layers deep.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}

_OWN_SEED = 20170612  # unlike what readers seed their x with: other content must be other

Call = Callable[[nn.Module, Tensor, Tensor | None], object]
Step = Callable[[nn.Module, Tensor, object], tuple[object, object]]


class CannotRun(Exception):
    """A check says why it cannot say anything."""


@dataclass
class Probe:
    """The module to diagnose, and how to call it.

    Args:
        module: any module.
        x: (B, L, …) floats or (B, L) integers, at least 3 tokens. Of one sequence two are made, the second backwards.
        call: how the module is called with x and `keep`; `module(x)` when not given.
        causal: whether no output may depend on a later token.
        positional: whether the order of the tokens matters.
        step: how the module goes on from a state.
        untrained: whether it stands at its random start.

    Raises:
        TypeError: no module, or no tensor.
        ValueError: an x of the wrong shape, or a module that cannot be called with it.
    """

    module: nn.Module
    x: Tensor
    call: Call | None = None
    causal: bool = False
    positional: bool = True
    step: Step | None = None
    untrained: bool = True
    takes_keep: bool = field(init=False)
    takes_none: bool = field(default=True, init=False)
    _noise: dict[Mode, float] = field(default_factory=dict, init=False)

    def __post_init__(self):
        if not isinstance(self.module, nn.Module):
            raise TypeError(f"module is a torch.nn.Module, got {type(self.module).__name__}.")
        if not isinstance(self.x, Tensor):
            raise TypeError(f"x is a tensor, got {type(self.x).__name__}.")
        floats = self.x.is_floating_point()
        if self.x.dim() < 2 or (floats and self.x.dim() < 3) or self.x.size(0) < 1 or self.x.size(1) < 3:
            raise ValueError(
                "x must be (B, L, d_model) floats or (B, L) integer tokens with L ≥ 3, "
                f"got {self.x.dtype} {tuple(self.x.shape)}."
            )
        with torch.inference_mode(False):
            x = self.x.detach().clone()
            self.x = x if x.size(0) > 1 else torch.cat([x, x.flip(1)])
        self.takes_keep = self.call is not None and _takes(self.call, 3)

    def answer(self, module: nn.Module, x: Tensor, keep: Tensor | None) -> object:
        """Whatever the module returns for x and `keep`."""
        if self.call is None:
            return module(x)
        return self.call(module, x, keep) if self.takes_keep else self.call(module, x)

    def try_out(self) -> None:
        """Find out whether the module can be called at all, and without `keep`."""
        with Run(self, Mode(training=False, gradients=False)) as run:
            try:
                y = run(self.x)
            except Exception as error:
                self.takes_none = False  # from now on, every token is said to be real
                try:
                    y = run(self.x) if self.takes_keep else None
                except Exception:
                    y = None
                if y is None:
                    raise ValueError(f"the module cannot be called with x {tuple(self.x.shape)}: {brief(error)}") from error
        if y.dim() < 2 or y.size(0) != self.x.size(0):
            raise ValueError(f"the first output must be (B = {self.x.size(0)}, …), got {tuple(y.shape)}.")

    @property
    def tolerance(self) -> float:
        """The largest relative error that counts as equal, for the dtype that the module computes in."""
        floats = [t.dtype for t in (self.x, *self.module.parameters()) if t.is_floating_point()]
        return max((TOLERANCE.get(dtype, 1e-1) for dtype in floats), default=TOLERANCE[torch.float32])

    def noisy(self, mode: Mode) -> bool:
        """Whether two calls in a mode differ although all dropout is 0: they differ in the seed alone."""
        if mode not in self._noise:
            with Run(self, mode) as run:
                self._noise[mode] = error(run(self.x, seed=1), run(self.x, seed=2))
        return self._noise[mode] > self.tolerance

    def keep(self, *, in_front: bool = False) -> Tensor:
        """(B, L) with less and less real tokens from the first sequence, which is full, to the last."""
        B, L = self.x.shape[:2]
        lengths = torch.tensor([max(1, L * (B - b) // B) for b in range(B)])
        real = torch.arange(L) < lengths[:, None]
        return (real.flip(1) if in_front else real).to(self.x.device)

    @cached_property
    def disturbed(self) -> dict[str, Tensor]:
        """Other content in place of x: what it is, and the tensor."""
        random = torch.Generator().manual_seed(_OWN_SEED)
        if not self.x.is_floating_point():
            ids = self.x.unique()
            if len(ids) < 2:
                raise CannotRun("x holds one token only; give two different ones or more, so that they can be exchanged")
            shifts = [torch.randint(1, len(ids), self.x.shape, generator=random).to(self.x.device) for _ in range(2)]
            places = torch.searchsorted(ids, self.x.contiguous())
            return {f"other tokens{' again' * n}": ids[(places + shift) % len(ids)] for n, shift in enumerate(shifts)}
        other = torch.randn(self.x.shape, generator=random).to(self.x) * self.x.std() + self.x.mean()
        return {"other content": other, "content 100 times as large": other * 100}


class Run:
    """The module in one mode: inside `with`, its modes, dropout and gradients are set, and put back afterwards."""

    def __init__(self, probe: Probe, mode: Mode):
        self.probe, self.mode = probe, mode
        self.x, (self.B, self.L) = probe.x, probe.x.shape[:2]

    def __enter__(self) -> "Run":
        self._context = in_mode(self.probe.module, self.mode)
        self._context.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._context.__exit__(*error)

    def __call__(self, x: Tensor, keep: Tensor | None = None, *, seed: int = 0, module: nn.Module | None = None) -> Tensor:
        """The first output for x. Equal seeds make equal random numbers, so that dropout falls on the same places."""
        return first(self.answer(x, keep, seed=seed, module=module))

    def answer(self, x: Tensor, keep: Tensor | None = None, *, seed: int = 0, module: nn.Module | None = None) -> object:
        """All that is returned for copies of x and `keep`, so that these stay what they are."""
        if keep is not None and not self.probe.takes_keep:
            raise CannotRun("`call` does not take `keep`, so the module cannot be told what is padding")
        if keep is None and not self.probe.takes_none:
            keep = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        seed_all(x, seed)
        module = self.probe.module if module is None else module
        return self.probe.answer(module, x.clone(), None if keep is None else keep.clone())

    def per_token(self, y: Tensor, x: Tensor | None = None) -> Tensor:
        """The output itself, if it has a row for each token."""
        x = self.x if x is None else x
        if y.dim() < 3 or y.shape[:2] != x.shape[:2]:
            raise CannotRun(f"the output {tuple(y.shape)} has no row for each of the {x.size(1)} tokens")
        return y

    def real(self, y: Tensor, keep: Tensor) -> Tensor:
        """The outputs of real tokens; all of a pooled output."""
        return y[keep] if y.dim() >= 3 and y.shape[:2] == keep.shape else y

    def gradient(self, x: Tensor, keep: Tensor | None, part: Callable[[Tensor], Tensor]) -> Tensor:
        """How some part of the output depends on x: gradient of a random weighting of it. Same shape as x."""
        leaf = x.detach().clone().requires_grad_()
        chosen = part(self(leaf, keep))
        if not chosen.requires_grad:
            raise CannotRun("the output has no gradient with respect to x")
        (gradient,) = torch.autograd.grad((chosen * weighting(chosen)).sum(), leaf, allow_unused=True)
        return torch.zeros_like(x) if gradient is None else gradient

    @property
    def differentiates(self) -> bool:
        """Whether gradients with respect to x exist in this mode."""
        return self.mode.gradients and self.x.is_floating_point()

    def needs_stillness(self) -> None:
        """For checks, all at dropout 0, whose two runs draw different random numbers whatever the seed."""
        if self.probe.noisy(self.mode):
            raise CannotRun(f"outputs are random in {self.mode} although dropout was set to 0")

    def measure(self, what: str, value: float, tolerance: float, *, at_least: bool = False) -> Measurement:
        """A figure of this mode."""
        return Measurement(what, str(self.mode), float(value), tolerance, at_least)

    def equal(self, what: str, one: Tensor, other: Tensor) -> Measurement:
        """The relative error between what should be equal."""
        return self.measure(what, error(one, other), self.probe.tolerance)

    def zero(self, what: str, gradient: Tensor) -> Measurement:
        """The largest magnitude of what should be exactly 0."""
        return self.measure(what, size(gradient), 0.0)


def error(one: Tensor, other: Tensor) -> float:
    """Largest difference over largest magnitude of the other; infinite where shapes differ or a number is not finite."""
    if one.shape != other.shape:
        return float("inf")
    one, other = (t.detach().to("cpu", torch.float64) for t in (one, other))
    if not (one.isfinite().all() and other.isfinite().all()):
        return float("inf")
    return size(one - other) / max(size(other), 1e-30)


def size(x: Tensor) -> float:
    """Largest magnitude; infinite where a number is not finite, 0 where there is none."""
    if x.numel() == 0:
        return 0.0
    return x.detach().abs().max().item() if x.isfinite().all() else float("inf")


def weighting(y: Tensor) -> Tensor:
    """Random factors for a sum of outputs: a plain sum of what a layer norm returns would not depend on anything."""
    return torch.randn(y.shape, generator=torch.Generator().manual_seed(_OWN_SEED)).to(y)


def tensors(answer: object) -> Iterator[Tensor]:
    """Every tensor in what a module returns: a tensor, or tuples, lists and mappings of them."""
    if isinstance(answer, Tensor):
        yield answer
    elif isinstance(answer, (tuple, list)) or hasattr(answer, "values"):
        for part in answer.values() if hasattr(answer, "values") else answer:
            yield from tensors(part)


def first(answer: object) -> Tensor:
    """The first tensor in what a module returns: its output."""
    for tensor in tensors(answer):
        return tensor
    raise TypeError(f"`call` must return a tensor, or tensors in a tuple or a mapping, got {type(answer).__name__}.")


def brief(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else 'without a message'}"


def _takes(function: Callable, number: int) -> bool:
    """Whether a function can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*range(number))
    except TypeError:
        return False
    return True
