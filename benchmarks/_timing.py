"""What every benchmark shares: options, the check of outputs, timing in turns, and a table.

In each round every contender runs once, in a random order, so that whatever slows the machine slows them alike. A ratio is the
median over the rounds of (one contender / the other in the same round).
"""

import argparse
import gc
import importlib.util
import os
import platform
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from itertools import product
from pathlib import Path
from statistics import median, quantiles

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm

Answer = dict[str, Tensor]  # what a contender computed, by name: its output, and gradients if there was a backward pass
Calls = dict[str, Callable[[], Answer]]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # query, key, value (B, H, L, d) -> output
PASSES = ("forward", "forward + backward")

# How far two right answers may lie apart, relative to the largest number of the answer.
BOUND = {torch.float32: 1e-5, torch.bfloat16: 2**-6}
NO_VALUE = "—"


def parser(
    description: str, *, batch: int, budget: float = 6.0, rounds: int = 400, min_rounds: int = 9
) -> argparse.ArgumentParser:
    """The options that all benchmarks have, with these defaults."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="float32 on a CPU, bfloat16 on a GPU")
    made.add_argument("--batch", type=int, default=batch, help=f"sequences, {batch} when not given")
    made.add_argument("--threads", type=int, default=1, help="CPU threads of torch")
    made.add_argument("--budget", type=float, default=budget, help="seconds for each row, but at least --min-rounds")
    made.add_argument("--rounds", type=int, default=rounds, help="most rounds for each row")
    made.add_argument("--min-rounds", type=int, default=min_rounds, help="fewest rounds for each row")
    made.add_argument("--quick", action="store_true", help="a few small rows in a minute: to see that it runs, not how fast")
    return made


def start(options: argparse.Namespace, *packages: str) -> str:
    """Set torch up as the options say, and return what the figures depend on, in one line."""
    options.dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    if options.quick:
        options.budget, options.min_rounds = min(options.budget, 0.5), 3
    torch.set_num_threads(options.threads)
    random.seed(0)
    torch.manual_seed(0)
    if options.device == "cuda":
        name = torch.cuda.get_device_name()
    else:
        info = Path("/proc/cpuinfo")  # Linux alone has it
        models = re.findall(r"model name\s*: (.+)", info.read_text()) if info.exists() else []
        name = f"{(models or [platform.processor() or platform.machine()])[0]}, {torch.get_num_threads()} thread(s)"
    load = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    versions = [f"Python {platform.python_version()}", f"torch {torch.__version__}"]
    versions += [f"{package} {version(package)}" for package in packages if missing(package) is None]
    return f"{name}, {str(options.dtype).removeprefix('torch.')}, {', '.join(versions)}, {date.today()}{load}"


def missing(package: str) -> str | None:
    """Why the contenders of an optional package do not run, or None if it is installed."""
    if importlib.util.find_spec(package.replace("-", "_")) is None:
        return f"Without the rows of {package}, which is not installed: pip install {package}"
    return None


def random_inputs(shape: tuple[int, int, int, int], options: argparse.Namespace) -> list[Tensor]:
    """query, key and value (B, H, L, d), and a gradient of the output."""
    torch.manual_seed(0)
    return [torch.randn(shape, device=options.device, dtype=options.dtype, requires_grad=i < 3) for i in range(4)]


def build_call(attend: Attend, inputs: list[Tensor], passes: str) -> Callable[[], Answer]:
    """A function that runs one contender on what `random_inputs` made."""
    *inputs, upstream = inputs
    backward = passes != PASSES[0]

    def call() -> Answer:
        with torch.set_grad_enabled(backward):
            output = attend(*inputs)
        if not backward:
            return {"output": output}
        return {"output": output} | dict(zip(("dQ", "dK", "dV"), torch.autograd.grad(output, inputs, upstream), strict=True))

    return call


def saved_bytes(attend: Attend, inputs: list[Tensor]) -> int:
    """Bytes that the graph keeps between forward and backward, inputs and output included, each storage once."""
    storages = {}

    def keep(x: Tensor) -> Tensor:
        storages[x.untyped_storage().data_ptr()] = x.untyped_storage()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        output = attend(*inputs[:3])
        saved = sum(storage.nbytes() for storage in storages.values())
    del output
    return saved


def check(calls: Calls, reference: str, bound: float) -> None:
    """Stop at a contender whose answer is not the reference's: the time of a wrong answer is worth nothing."""
    expected = calls[reference]()
    for name, call in calls.items():
        answer = call()
        for what in expected.keys() & answer.keys():
            error = ((answer[what] - expected[what]).abs().max() / expected[what].abs().max()).item()
            if not error <= bound:
                raise SystemExit(f"{name}: {what} lies {error:.2g} from {reference}'s, relative to its largest number.")


@dataclass
class Row:
    """Seconds for one call, by contender and round; all contenders of a round ran one after another."""

    labels: dict[str, str]
    seconds: dict[str, list[float]]
    notes: dict[str, str] = field(default_factory=dict)

    def ratios(self, name: str, to: str) -> list[float]:
        return [a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True)]


def measure(calls: Calls, options: argparse.Namespace, labels: dict[str, object], *, counted: str) -> Row:
    """Time these contenders against each other, round by round, until the budget or the number of rounds is used up.

    On a GPU a row also says how many operations a second the contender `counted` does, and how much memory each one takes.
    """
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None

    def sample(call: Callable, repeats: int = 1) -> float:
        wait()
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        wait()
        return (time.perf_counter() - begin) / repeats

    once = []
    for call in calls.values():  # warm-up: a single one where a call is long
        once.append(sample(call))
        if once[-1] < 0.1:
            once.append(sample(call, 3))
    repeats = max(1, round(5e-3 / min(once)))  # a sample of 5 ms or more: the clock itself costs nothing
    seconds, order = {name: [] for name in calls}, list(calls)
    with _quiet():
        begin, done = time.perf_counter(), 0
        while done < options.rounds and (done < options.min_rounds or time.perf_counter() - begin < options.budget):
            random.shuffle(order)
            for name in order:
                seconds[name].append(sample(calls[name], repeats))
            done += 1
    row = Row({name: str(label) for name, label in labels.items()}, seconds)
    if options.device == "cuda":
        row.notes = {f"{counted}, TFLOP/s": f"{_operations(calls[counted]) / median(seconds[counted]) / 1e12:.1f}"}
        row.notes |= {f"{name}, peak MiB": f"{peak_bytes(call) / 2**20:.0f}" for name, call in calls.items()}
    return row


def grid(
    build_calls: Callable[..., Calls],
    options: argparse.Namespace,
    settings: Iterable[str],
    passes: Iterable[str],
    expected: Callable[[str], str],
    counted: str,
) -> list[Row]:
    """Check and time the contenders at each length, setting and pass.

    Args:
        build_calls: from length, setting, pass and options to the contenders' calls.
        options: those of `parser`, and `lengths`, of which --quick takes two.
        expected: from a pass to the contender whose answer the others must give.
        counted: the contender whose products are counted.
    """
    rows = []
    lengths = options.lengths[:2] if options.quick else options.lengths
    for labels in tqdm(list(product(lengths, settings, passes)), unit="row"):
        calls = build_calls(*labels, options)
        check(calls, expected(labels[-1]), BOUND[options.dtype])
        rows.append(measure(calls, options, dict(zip(("length", "setting", "pass"), labels, strict=True)), counted=counted))
    return rows


def table(rows: Sequence[Row], times: Iterable[str], ratios: Iterable[tuple[str, str]]) -> str:
    """Markdown: times of these contenders in ms, then these ratios, each as median (middle half of the rounds)."""
    times, ratios = list(times), list(ratios)
    notes = list(dict.fromkeys(name for row in rows for name in row.notes))
    head = [*rows[0].labels, *(f"{name}, ms" for name in times), *(f"{a} / {b}" for a, b in ratios), *notes, "rounds"]
    lines = [head]
    for row in rows:
        ran = row.seconds
        cells = [with_spread([1000 * s for s in ran[name]], 3) if name in ran else NO_VALUE for name in times]
        cells += [with_spread(row.ratios(a, b), 3) if a in ran and b in ran else NO_VALUE for a, b in ratios]
        cells += [row.notes.get(name, NO_VALUE) for name in notes]
        lines.append([*row.labels.values(), *cells, str(len(next(iter(ran.values()))))])
    return markdown(lines)


def markdown(lines: list[list[str]]) -> str:
    """A table, its columns padded so that a terminal shows one too. The first line is its head."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return "\n".join("| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines)


def with_spread(values: list[float], digits: int) -> str:
    """Median and, in brackets, the middle half of the values."""
    low, _, high = quantiles(values, n=4)
    return f"{median(values):.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


@contextmanager
def _quiet() -> Iterator[None]:
    """No garbage collection in the middle of a sample."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _operations(call: Callable) -> int:
    """Floating-point operations of the matrix products in a call. Causal attention counts in full, as is the custom."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def peak_bytes(call: Callable) -> int:
    """Bytes of GPU memory that a call takes at its height, beside what was taken before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    answer = call()
    torch.cuda.synchronize()
    del answer
    return torch.cuda.max_memory_allocated() - before
