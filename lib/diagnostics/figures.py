"""Checks of sizes: half precision, long inputs, scores and weights, gradients of the projections."""

import copy
import re
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from lib.diagnostics.probe import CannotRun, Run, brief, error, tensors, weighting
from lib.diagnostics.recording import record_attention
from lib.diagnostics.report import Measurement

HALF = {torch.bfloat16: 0.1, torch.float16: 0.02}  # relative error of the output that is let pass
LARGE = 16  # times unit variance: what activations grow to in training
LONG = 256
MOST_SCORE = 1.5  # deviation of the scores at the start; 1 is what unit queries and keys give
_DTYPES_DIFFER = r"dtype|scalar type|expected .* but (got|found)"
_OBSCURE = r"must match the|cannot be multiplied|invalid for input|expanded size|could not be broadcast"  # torch's own words


def half_precision(run: Run) -> Iterator[Measurement]:
    """In bfloat16 and float16 outputs are finite and close to float32's, and still finite for inputs 16 times as large.

    A copy is converted; where its parts then do not fit together, it runs in float32 under autocast instead.
    """
    run.needs_stillness()
    reasons = []
    for dtype in HALF:
        name = str(dtype).removeprefix("torch.")
        try:
            yield from _in_half(run, dtype, name, autocast=False)
        except Exception as problem:
            if "overflow" in str(problem):
                yield run.measure(f"a constant that {name} cannot hold ({brief(problem)})", float("inf"), 0.0)
            elif re.search(_DTYPES_DIFFER, str(problem)):
                yield from _in_half(run, dtype, f"{name} under autocast", autocast=True)
            else:
                reasons.append(f"{name}: {brief(problem)}")
    if reasons:
        raise CannotRun("; ".join(reasons))


def _in_half(run: Run, dtype: torch.dtype, name: str, *, autocast: bool) -> list[Measurement]:
    """All figures of one dtype, or none: an error halfway may lead to another way."""
    full = copied(run.probe.module).float()
    half, dtype_in = (full, torch.float32) if autocast else (copied(run.probe.module).to(dtype), dtype)
    found = []
    for what, keep in [("", None)] + ([(" with padding", run.probe.keep())] if run.probe.takes_keep else []):
        expected = _as(run, full, torch.float32, keep)
        with torch.autocast(run.x.device.type, dtype=dtype, enabled=autocast):
            y, large = _as(run, half, dtype_in, keep), _as(run, half, dtype_in, keep, LARGE)
        if keep is not None:
            y, expected = run.real(y, keep), run.real(expected, keep)
        found.append(run.measure(f"error of {name} against float32{what}", error(y.float(), expected), HALF[dtype]))
        lost = f"outputs of {name} that are not finite for inputs {LARGE} times as large{what}"
        found.append(run.measure(lost, (~large.isfinite()).sum(), 0.0))
    return found


def _as(run: Run, module: nn.Module, dtype: torch.dtype, keep: Tensor | None, factor: float = 1.0) -> Tensor:
    x = (run.x * factor).to(dtype) if run.x.is_floating_point() else run.x
    return run(x, keep, module=module)


def long_input(run: Run) -> Iterator[Measurement]:
    """256 tokens, or four times x, give finite outputs or an error that names the length. On a CPU: some faults break a GPU."""
    L = max(4 * run.L, LONG)
    x = run.x[:1].cpu().repeat(1, -(-L // run.L), *[1] * (run.x.dim() - 2))[:, :L]
    module = copied(run.probe.module).cpu() if run.x.is_cuda else run.probe.module
    pooled = run(x[:, : run.L], module=module).shape[:2] != (1, run.L)  # an error here has nothing to do with the length
    try:
        y = run(x, module=module)
    except Exception as problem:
        clear = str(L) in str(problem) and not re.search(_OBSCURE, str(problem))
        what = "a clear error" if clear else "an error from deep inside"
        yield run.measure(f"{what} at {L} tokens: {brief(problem)}", float(not clear), 0.0)
        return
    if not pooled:
        yield run.measure(f"tokens of {L} without an output", L - y.size(1), 0.0)
    yield run.measure(f"outputs of {L} tokens that are not finite", (~y.isfinite()).sum(), 0.0)


def scores(run: Run) -> Iterator[Measurement]:
    """Scores have a sane size at the start, from tokens of unit variance.

    Measured as the change of the weights' logarithm between two contents, over √2: the deviation of the scores, where added
    biases (positions, masks) cancel. Without the scale it is √d_k times as large. Heads narrower than about 20 may keep the
    bound without it, and then do not suffer.
    """
    if not run.probe.untrained:
        raise CannotRun("untrained=False: a trained attention may have large scores for good reason")
    one, other = (weights_of(run, x) for x in (run.x, next(iter(run.probe.disturbed.values()))))
    for name in (name for name in one if name in other):
        seen = (one[name] > 0) & (other[name] > 0)
        change = torch.where(seen, one[name].log() - other[name].log(), torch.nan)
        change = change - change.nanmean(dim=-1, keepdim=True)
        counts = seen.sum(-1, keepdim=True)
        freedom = (seen * (counts - 1) / counts.clamp(min=1)).sum()  # each row's mean was taken from its own keys
        deviation = (change.nan_to_num().square().sum() / freedom.clamp(min=1) / 2).sqrt()
        yield run.measure(f"deviation of the scores{_of(name)}", deviation, MOST_SCORE)


def alive(run: Run) -> Iterator[Measurement]:
    """Attention has not collapsed: on one key, on the first token, to the plain mean, or to the same weights in all heads."""
    for name, w in weights_of(run, run.x).items():
        keys = (w > 0).sum(-1)
        choice = (torch.arange(run.L, device=w.device) > 0) if run.probe.causal else torch.ones(run.L, dtype=torch.bool)
        entropy = -(w * w.clamp(min=1e-30).log()).sum(-1) / keys.clamp(min=2).log()
        yield run.measure(f"entropy over its maximum{_of(name)}", entropy[:, choice].mean(-1).max(), 0.05, at_least=True)
        late = w[:, run.L // 2 :, 0].mean(-1).min()
        yield run.measure(f"mass on the first token{_of(name)}", late, 0.9)
        departure = (w - w.sign() / keys.clamp(min=1)[..., None]).abs().max()
        yield run.measure(f"departure from equal weights{_of(name)}", departure, 1e-6, at_least=True)
        if len(w) > 1 and departure > 0:
            pairs = torch.combinations(torch.arange(len(w), device=w.device))
            unlike = (w[pairs[:, 0]] - w[pairs[:, 1]]).abs().amax((1, 2)).min() / departure
            yield run.measure(f"difference of the two heads most alike{_of(name)}", unlike, 1e-3, at_least=True)


def weights_of(run: Run, x: Tensor) -> dict[str, Tensor]:
    """Name of the attention → its weights (heads, L, L), float32, for the first sequence of x, with tokens of unit variance."""
    if x.is_floating_point():
        x = (x - x.mean()) / x.std().clamp(min=1e-12)
    with record_attention(run.probe.module) as recorded:
        run(x[:1])
    square = {name: w.float().reshape(-1, *w.shape[-2:]) for name, w in recorded.items() if w.shape[-2:] == (run.L, run.L)}
    if not square:
        raise CannotRun(f"no softmax over {run.L} keys and no scaled_dot_product_attention was seen")
    return square


def gradients(run: Run) -> Iterator[Measurement]:
    """Each matrix that is not an embedding gets a gradient, in three quarters of its rows and columns at least.

    A few may be 0 for the tokens at hand, behind a ReLU. A submodule that runs after the last matrix with a gradient stands
    behind the output that was returned, as a pooler does, and is let pass.
    """
    module, ran = run.probe.module, []
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    matrices = {n: p for n, p in module.named_parameters() if p.requires_grad and p.dim() >= 2 and id(p) not in tables}
    if not matrices:
        raise CannotRun("the module has no matrix that asks for a gradient")
    handles = [part.register_forward_pre_hook(lambda part, _: ran.append(part)) for part in module.modules()]
    try:
        answer = run.answer(run.x)
    finally:
        for handle in handles:
            handle.remove()
    graph = [one for one in tensors(answer) if one.requires_grad]
    if not graph:
        raise CannotRun("the output has no gradient at all")
    loss = sum((one * weighting(one)).sum() for one in graph)
    found = dict(zip(matrices, torch.autograd.grad(loss, list(matrices.values()), allow_unused=True), strict=True))

    behind = _behind_the_output(module, ran, {name for name, gradient in found.items() if gradient is not None})
    dead = [name for name, g in found.items() if (_dead(g, run.L) if g is not None else name not in behind)]
    what = f"of {len(matrices)} matrices without a gradient in all their parts"
    yield run.measure(f"{what} ({', '.join(dead[:4])})" if dead else what, len(dead), 0.0)


def _behind_the_output(module: nn.Module, ran: list[nn.Module], live: set[str]) -> set[str]:
    """Parameters of submodules that ran after all with a gradient, and around which nothing else has one either."""
    owner = {name: name.rpartition(".")[0] for name, _ in module.named_parameters()}
    first_run = {part: order for order, part in reversed(list(enumerate(ran)))}
    time = {name: first_run.get(module.get_submodule(path), -1) for name, path in owner.items()}
    last = max((time[name] for name in live), default=-1)
    around = {name: path.rpartition(".")[0] for name, path in owner.items()}
    return {n for n in owner if time[n] > last and around[n] and not any(one.startswith(f"{around[n]}.") for one in live)}


def _dead(gradient: Tensor, L: int) -> bool:
    """Whether a gradient is 0 in more than a quarter of the rows or columns. A table of positions is 0 behind its L-th row."""
    if not gradient.isfinite().all() or not gradient.any():
        return True
    if gradient.dim() > 2:
        return False
    rows, columns = gradient.abs().sum(1), gradient.abs().sum(0)
    table = len(rows) > L and rows[:L].all() and not rows[L:].any()
    return not table and any((line == 0).float().mean() > 0.25 for line in (rows, columns))


def copied(module: nn.Module) -> nn.Module:
    """A copy to convert, so that the module itself stays what it is."""
    try:
        return copy.deepcopy(module)
    except Exception as problem:
        raise CannotRun(f"the module cannot be copied: {brief(problem)}") from problem


def _of(name: str) -> str:
    return f" of {name}" if name else ""
