"""Checks of structure: the order of tokens, heads that keep their positions, one step at a time."""

from collections.abc import Iterator

import torch

from lib.diagnostics.probe import CannotRun, Run, error
from lib.diagnostics.report import Measurement

LEAST_EFFECT = 1e-4  # relative change below which order has no effect worth the name


def order(run: Run) -> Iterator[Measurement]:
    """Without positions a permuted input gives the permuted output; with them it does not.

    A causal module without positions sees order through its mask, and nothing can be said. With them, its last output changes
    when the tokens before it change places.
    """
    causal, positional = run.probe.causal, run.probe.positional
    if causal and not positional:
        raise CannotRun("a causal mask shows the order of tokens even without positions")
    run.needs_stillness()
    y = run.per_token(run(run.x))
    turned = torch.arange(run.L).roll(1)
    if causal:
        turned = torch.cat([torch.arange(run.L - 1).flip(0), torch.tensor([run.L - 1])])
        change = error(run(run.x[:, turned])[:, -1], y[:, -1])
        yield run.measure(
            "change of the last output when the tokens before it change places", change, LEAST_EFFECT, at_least=True
        )
        return
    moved = run(run.x[:, turned])
    if positional:
        what = "difference between the output of permuted tokens and the permuted output"
        yield run.measure(what, error(moved, y[:, turned]), LEAST_EFFECT, at_least=True)
    else:
        yield run.equal("difference between the output of permuted tokens and the permuted output", moved, y[:, turned])


def heads(run: Run) -> Iterator[Measurement]:
    """Heads do not mix positions.

    Without positions: whatever the weights, the mean of equal values is that value, so a sequence of one repeated token gives
    everywhere what the token gives alone. Heads that were reshaped without a transpose mix parts of the token instead. Where
    weights do not sum to 1 (attention sinks) it need not hold, so a second figure must be wrong too: a causal module's first
    tokens without the rest, or else the permuted input.

    With positions: one real token among padding gives what it gives alone; a causal module's first tokens likewise.
    """
    run.needs_stillness()
    if not run.probe.positional:
        yield _repeated_token(run)
    elif run.probe.takes_keep:
        keep = torch.zeros(run.x.shape[:2], dtype=torch.bool, device=run.x.device)
        keep[:, 0] = True
        y = run.per_token(run(run.x, keep))
        yield run.equal("change of a token by the places of hidden ones", y[:, :1], run(run.x[:, :1]))
    elif run.probe.causal:
        yield run.equal("change of the first token when the rest is cut off", *_first_token(run))
    else:
        raise CannotRun("with positions it takes a `keep` or a causal module to see one token by itself")


def _repeated_token(run: Run) -> Measurement:
    alone = run(run.x[:, :1])
    repeated = run.x[:, :1].expand(run.x.shape)
    y = run.per_token(run(repeated), repeated)
    wrong = error(y, alone.expand(y.shape))
    if wrong > run.probe.tolerance:
        pair = _first_token(run) if run.probe.causal else (run(run.x.roll(1, dims=1)), run(run.x).roll(1, dims=1))
        wrong = min(wrong, error(*pair))
    return run.measure("difference between a repeated token and the token alone", wrong, run.probe.tolerance)


def _first_token(run: Run) -> tuple[torch.Tensor, torch.Tensor]:
    return run.per_token(run(run.x))[:, :1], run(run.x[:, :1])


def steps(run: Run) -> Iterator[Measurement]:
    """Token by token, or half of the sequence first, gives what the full pass gives. Without gradients, as caches are used."""
    step = run.probe.step
    if step is None:
        raise CannotRun("no `step` was given")
    run.needs_stillness()
    y = run.per_token(run(run.x))
    half = run.L // 2
    splits = {"token by token": [1] * run.L, f"{half} tokens, then one by one": [half] + [1] * (run.L - half)}
    for name, sizes in splits.items():
        state, pieces = None, []
        for piece in run.x.split(sizes, dim=1):
            out, state = step(run.probe.module, piece.clone(), state)
            pieces.append(run.per_token(out, piece))
        yield run.equal(f"difference from the full pass, {name}", torch.cat(pieces, dim=1), y)
