"""One attention of ours against torch's function on the same inputs: time of a forward pass, and of forward and backward.

    python benchmarks/attention.py                 # CPU, one thread, float32
    python benchmarks/attention.py --device cuda   # bfloat16

Prints a Markdown table; README.md beside this file says how to read it. It asserts nothing about time, but first checks every
contender's output and gradients against torch's and stops at a wrong one.

In each round every contender runs once, in a random order, so that whatever slows the machine slows them alike. A ratio is the
median over the rounds of (contender / torch in the same round). Torch runs twice: its ratio to itself is the noise.
"""

import argparse
import gc
import os
import platform
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median, quantiles

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from lib import masks
from lib.attention import scaled_dot_product_attention

LENGTHS = (128, 256, 512, 1024, 2048)
HEADS, WIDTH = 8, 64  # the base model of Vaswani et al. 2017, table 3
SETTINGS = ("full", "causal", "boolean mask")
PASSES = ("forward", "forward + backward")
CONTENDERS = {
    "torch": F.scaled_dot_product_attention,
    "torch again": F.scaled_dot_product_attention,
    "auto": partial(scaled_dot_product_attention, backend="auto"),
    "eager": partial(scaled_dot_product_attention, backend="eager"),
}
# How far two right answers may lie apart, relative to the largest number of the answer.
BOUND = {torch.float32: 1e-5, torch.bfloat16: 2**-6}


@dataclass
class Row:
    """Seconds for one call, by contender and round; all contenders of a round ran one after another."""

    length: int
    setting: str
    passes: str
    seconds: dict[str, list[float]]

    def ratios(self, name: str) -> list[float]:
        return [own / torchs for own, torchs in zip(self.seconds[name], self.seconds["torch"], strict=True)]


Calls = dict[str, Callable[[], list[Tensor]]]


def build_calls(batch: int, length: int, setting: str, passes: str, device: str, dtype: torch.dtype) -> Calls:
    """One function for each contender, over the same tensors: it returns the output, after a backward the gradients too."""
    torch.manual_seed(0)
    backward = passes != "forward"
    shape = batch, HEADS, length, WIDTH
    inputs = [torch.randn(shape, device=device, dtype=dtype, requires_grad=backward) for _ in range(3)]
    upstream = torch.randn(shape, device=device, dtype=dtype)
    # The last quarter of the keys is padding.
    mask = masks.padding([length * 3 // 4] * batch, length, device=device) if setting == "boolean mask" else None

    def call(attention: Callable[..., Tensor]) -> list[Tensor]:
        with torch.set_grad_enabled(backward):
            output = attention(*inputs, attn_mask=mask, is_causal=setting == "causal")
        return [output, *torch.autograd.grad(output, inputs, upstream)] if backward else [output]

    return {name: partial(call, attention) for name, attention in CONTENDERS.items()}


def check(calls: Calls, dtype: torch.dtype) -> None:
    """Stop at a contender whose output or gradients are not torch's: the time of a wrong answer is worth nothing."""
    expected = calls["torch"]()
    for name, call in calls.items():
        for what, own, torchs in zip(("output", "dQ", "dK", "dV"), call(), expected, strict=False):
            error = ((own - torchs).abs().max() / torchs.abs().max()).item()
            if not error <= BOUND[dtype]:
                raise SystemExit(f"{name}: {what} lies {error:.2g} from torch's, relative to its largest number.")


def measure(calls: Calls, device: str, budget: float, rounds: int) -> dict[str, list[float]]:
    """Seconds for one call of each contender, round by round, until the budget (s) or the number of rounds is used up."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def sample(call: Callable, repeats: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        wait()
        return (time.perf_counter() - start) / repeats

    for call in calls.values():
        sample(call, 3)  # warm-up
    repeats = max(1, round(5e-3 / sample(calls["torch"], 3)))  # a sample of 5 ms or more: the clock itself costs nothing
    seconds, order, start = {name: [] for name in calls}, list(calls), time.perf_counter()
    while len(seconds["torch"]) < rounds and (len(seconds["torch"]) < 9 or time.perf_counter() - start < budget):
        random.shuffle(order)
        for name in order:
            seconds[name].append(sample(calls[name], repeats))
    return seconds


@contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection in the middle of a sample."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def with_spread(values: list[float], digits: int) -> str:
    """Median and, in brackets, the middle half of the values."""
    low, _, high = quantiles(values, n=4)
    return f"{median(values):.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def table(rows: list[Row]) -> str:
    """Markdown, its columns padded so that a terminal shows a table too. Times in ms."""
    head = ["length", "setting", "pass", "torch, ms", "auto, ms", "auto / torch", "torch / torch", "eager / torch", "rounds"]
    lines = [head]
    for row in rows:
        milliseconds = {name: [1000 * s for s in values] for name, values in row.seconds.items()}
        lines.append(
            [str(row.length), row.setting, row.passes]
            + [with_spread(milliseconds[name], 3) for name in ("torch", "auto")]
            + [with_spread(row.ratios(name), 3) for name in ("auto", "torch again")]
            + [with_spread(row.ratios("eager"), 2), str(len(row.seconds["torch"]))]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines)


def machine(device: str, dtype: torch.dtype) -> str:
    """What the figures depend on, in one line."""
    if device == "cuda":
        name = torch.cuda.get_device_name()
    else:
        info = Path("/proc/cpuinfo")  # Linux alone has it
        models = re.findall(r"model name\s*: (.+)", info.read_text()) if info.exists() else []
        name = f"{(models or [platform.processor() or platform.machine()])[0]}, {torch.get_num_threads()} thread(s)"
    load = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{name}, {str(dtype).removeprefix('torch.')}, {versions}, {date.today()}{load}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, default=1, help="sequences; 1 shows most of what a call costs besides its sums")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of torch")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds for each row, but at least 9 rounds")
    parser.add_argument("--rounds", type=int, default=400, help="most rounds for each row")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    random.seed(0)
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    header = machine(options.device, dtype)

    rows = []
    for length, setting, passes in tqdm(list(product(options.lengths, SETTINGS, PASSES)), unit="row"):
        calls = build_calls(options.batch, length, setting, passes, options.device, dtype)
        check(calls, dtype)
        with quiet():
            rows.append(Row(length, setting, passes, measure(calls, options.device, options.budget, options.rounds)))

    print(f"{header}\n\n{table(rows)}\n")
    worst = max(rows, key=lambda row: median(row.ratios("auto")))
    print(
        f"Slowest beside torch: {median(worst.ratios('auto')):.3f}, at length {worst.length}, {worst.setting}, {worst.passes}."
    )


if __name__ == "__main__":
    main()
