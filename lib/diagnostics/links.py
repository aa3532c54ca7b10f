"""Checks of who influences whom: the future, padding, the other sequences of a batch, a sequence without any token.

Each is measured twice where x is made of floats: by putting other content in a place that must not matter, and by the gradient
with respect to that place, which must be exactly 0. Integer tokens have no gradient and are exchanged alone.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from lib.diagnostics.probe import CannotRun, Run, error, first, tensors, weighting
from lib.diagnostics.report import Measurement

MOST_CUTS = 8


def future(run: Run) -> Iterator[Measurement]:
    """Outputs before a cut do not depend on inputs from the cut on, at up to 8 cuts; and likewise beside a padding mask."""
    if not run.probe.causal:
        raise CannotRun("causal=False: the module may look at later tokens")
    cuts = torch.linspace(1, run.L - 1, min(run.L - 1, MOST_CUTS)).long().tolist()
    yield from _beyond(run, cuts, None, "")
    if run.probe.takes_keep:
        yield from _beyond(run, cuts, run.probe.keep(), ", beside a padding mask")


def _beyond(run: Run, cuts: list[int], keep: Tensor | None, beside: str) -> Iterator[Measurement]:
    def earlier(y: Tensor, t: int) -> Tensor:
        return y[:, :t] if keep is None else y[:, :t][keep[:, :t]]  # of real tokens

    x, y = run.x, run.per_token(run(run.x, keep))
    for what, other in run.probe.disturbed.items():
        moved = max(error(earlier(run(torch.cat([x[:, :t], other[:, t:]], dim=1), keep), t), earlier(y, t)) for t in cuts)
        what = f"change of earlier outputs when later tokens are {what}{beside}"
        yield run.measure(what, moved, run.probe.tolerance)
    if run.differentiates:
        gradients = [run.gradient(x, keep, lambda y, t=t: earlier(y, t))[:, t:].flatten() for t in cuts]
        yield run.zero(f"gradient of earlier outputs with respect to later inputs{beside}", torch.cat(gradients))


def full_mask(run: Run) -> Iterator[Measurement]:
    """To say that every token is real is to say nothing."""
    if not run.probe.takes_none:
        raise CannotRun("the module cannot be called with keep=None, so there is nothing to compare with")
    every = torch.ones(run.x.shape[:2], dtype=torch.bool, device=run.x.device)
    yield run.equal("change of outputs when `keep` is all True instead of None", run(run.x, every), run(run.x))


def padding_content(run: Run) -> Iterator[Measurement]:
    """Outputs of real tokens do not depend on what stands in the padding, behind or in front."""
    for side in ("behind", "in front"):
        keep = run.probe.keep(in_front=side == "in front")
        y = run.real(run(run.x, keep), keep)
        for what, other in run.probe.disturbed.items():
            x = torch.where(keep.view(*keep.shape, *[1] * (run.x.dim() - 2)), run.x, other)
            moved = run.real(run(x, keep), keep)
            yield run.equal(f"change of real tokens' outputs when the padding {side} is {what}", moved, y)
        if run.differentiates:
            gradient = run.gradient(run.x, keep, lambda y, keep=keep: run.real(y, keep))
            yield run.zero(f"gradient of real tokens' outputs with respect to the padding {side}", gradient[~keep])


def padding_amount(run: Run) -> Iterator[Measurement]:
    """A sequence with padding behind it gives what it gives without."""
    run.needs_stillness()
    keep = run.probe.keep()
    y = run(run.x, keep)
    for b, length in enumerate(keep.sum(1).tolist()[1:], start=1):
        alone = run(run.x[b : b + 1, :length])
        padded = y[b : b + 1, :length] if alone.dim() >= 3 and alone.size(1) == length else y[b : b + 1]
        yield run.equal(f"change of a sequence of {length} when padded to {run.L}", padded, alone)


def batch(run: Run) -> Iterator[Measurement]:
    """A sequence does not depend on its neighbors in the batch, nor on whether it has any."""
    x, y = run.x, run(run.x)
    for what, other in run.probe.disturbed.items():
        neighbors = torch.cat([x[:1], other[1:]])
        yield run.equal(f"change of the first sequence's output when the others are {what}", run(neighbors)[:1], y[:1])
    if run.differentiates:
        gradient = run.gradient(x, None, lambda y: y[:1])[1:]
        yield run.zero("gradient of the first sequence's output with respect to the others", gradient)
    if run.mode.dropout:
        return
    run.needs_stillness()
    for b in range(run.B):
        yield run.equal("difference between a sequence alone and in the batch", run(x[b : b + 1]), y[b : b + 1])


def wholly_padded(run: Run) -> Iterator[Measurement]:
    """A sequence without any real token leaves everything finite, its own outputs and all gradients too."""
    full = torch.ones(run.x.shape[:2], dtype=torch.bool, device=run.x.device)
    keep = full.clone()
    keep[-1] = False
    leaf = run.x.detach().clone()
    wanted = [p for p in run.probe.module.parameters() if p.requires_grad and run.mode.gradients]
    if run.differentiates:
        wanted.append(leaf.requires_grad_())
    answer = run.answer(leaf, keep)
    y = first(answer)
    yield run.measure("outputs that are not finite, with a sequence of padding alone", _not_finite(y), 0.0)
    yield run.equal("change of the other sequences", y[:-1], run(run.x, full)[:-1])
    if wanted and y.requires_grad:
        loss = sum((one * weighting(one)).sum() for one in tensors(answer) if one.requires_grad)
        gradients = [g for g in torch.autograd.grad(loss, wanted, allow_unused=True) if g is not None]
        yield run.measure("gradients that are not finite", sum(map(_not_finite, gradients)), 0.0)


def _not_finite(x: Tensor) -> int:
    return int((~x.isfinite()).sum())
