"""Checks of what must be the same: twice the same call, train and eval, the inputs before and after."""

from collections.abc import Iterator

from lib.diagnostics.modes import Mode, dropout_at, dropouts, seed_all
from lib.diagnostics.probe import Run, size
from lib.diagnostics.report import Measurement


def eval_is_deterministic(run: Run) -> Iterator[Measurement]:
    """Two calls in eval agree, also where every probability of dropping is raised to one half."""
    what = "difference of two calls in eval"
    yield run.equal(what, run(run.x, seed=1), run(run.x, seed=2))
    if any(dropouts(run.probe.module)):
        with dropout_at(run.probe.module, 0.5):
            yield run.equal(f"{what} with every dropout raised to 0.5", run(run.x, seed=1), run(run.x, seed=2))


def no_dropout_is_deterministic(run: Run) -> Iterator[Measurement]:
    """Two calls in train agree once every probability of dropping is 0."""
    yield run.equal("difference of two calls in train with every dropout at 0", run(run.x, seed=1), run(run.x, seed=2))


def train_equals_eval(run: Run) -> Iterator[Measurement]:
    """With dropout 0 each mode gives what eval with gradients gives, with and without a padding mask."""
    run.needs_stillness()
    masks = [("", None)] + ([(", with padding", run.probe.keep())] if run.probe.takes_keep else [])
    for name, keep in masks:
        with Run(run.probe, Mode(training=False, gradients=True)) as reference:
            expected = reference(run.x, keep)
        y = run(run.x, keep)
        if keep is not None:
            y, expected = run.real(y, keep), run.real(expected, keep)
        yield run.equal(f"difference from eval with gradients{name}", y, expected)


def inputs_untouched(run: Run) -> Iterator[Measurement]:
    """x and `keep` hold after the call what they held before."""
    given = {"x": run.x.clone()}
    if run.probe.takes_keep:
        given["keep"] = run.probe.keep()
    before = {name: (tensor.clone(), tensor._version) for name, tensor in given.items()}
    seed_all(run.x, 0)
    run.probe.answer(run.probe.module, given["x"], given.get("keep"))
    for name, tensor in given.items():
        saved, version = before[name]
        changed = size(tensor.double() - saved.double())
        yield run.measure(f"largest change of {name} itself", changed or float(tensor._version != version), 0.0)
