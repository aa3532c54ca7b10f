"""Tiled attention against the eager form, and a window against torch's fused causal attention: time and saved memory.

    python benchmarks/efficient.py                 # CPU, one thread, float32
    python benchmarks/efficient.py --device cuda   # bfloat16

Prints two Markdown tables; README.md beside this file says how to read them. They assert nothing about time, but first every
contender's numbers are checked, and a wrong one stops the run. Saved memory is what the graph keeps between forward and
backward, inputs and output included, each storage once.
"""

from argparse import Namespace
from functools import partial
from itertools import product
from statistics import median

import _timing
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from lib import masks
from lib.attention import scaled_dot_product_attention
from lib.efficient import windowed_attention

HEADS, WIDTH = 8, 64  # the base model of Vaswani et al. 2017, table 3
LENGTHS = (1024, 2048, 4096)
WINDOW, WINDOW_LENGTHS = 256, (2048, 8192, 16384, 32768)
CHECKED = 2048  # queries whose numbers are compared with the dense mask: the last ones of a longer sequence
LONGEST_FULL = 8192  # torch's causal attention runs up to here on a CPU: beyond, a row would take many minutes


def tiled_row(length: int, is_causal: bool, passes: str, options: Namespace) -> _timing.Row:
    """All (L, S) links: torch's fused kernel, ours with the weights formed, ours by tiles."""
    inputs = _timing.random_inputs((options.batch, HEADS, length, WIDTH), options)
    attends = {
        "torch": partial(F.scaled_dot_product_attention, is_causal=is_causal),
        "eager": partial(scaled_dot_product_attention, is_causal=is_causal, backend="eager"),
        "tiled": partial(scaled_dot_product_attention, is_causal=is_causal, backend="tiled"),
    }
    calls = {name: _timing.build_call(attend, inputs, passes) for name, attend in attends.items()}
    _timing.check(calls, "torch", _timing.BOUND[options.dtype])
    labels = {"length": length, "setting": "causal" if is_causal else "full", "pass": passes}
    row = _timing.measure(calls, options, labels, counted="tiled")
    row.notes |= {f"{name} saves, MiB": _mebibytes(attends[name], inputs) for name in ("eager", "tiled")}
    return row


def check_window(attend: _timing.Attend, inputs: list[Tensor], options: Namespace) -> None:
    """Against the dense mask: output and gradients of a short sequence, the last outputs of a long one."""
    *_, length, _ = inputs[0].shape
    if length <= CHECKED:
        dense = partial(scaled_dot_product_attention, attn_mask=masks.sliding_window(length, WINDOW, device=options.device))
        calls = {
            name: _timing.build_call(form, inputs, _timing.PASSES[1])
            for name, form in {"windowed": attend, "dense": dense}.items()
        }
    else:
        reach = CHECKED + WINDOW - 1  # keys that the last queries see
        mask = masks.sliding_window(CHECKED, WINDOW, S=reach, device=options.device)
        ends = [x.detach()[:, :, -n:] for x, n in zip(inputs[:3], (CHECKED, reach, reach), strict=True)]
        whole = _timing.build_call(attend, inputs, _timing.PASSES[0])
        calls = {
            "windowed": lambda: {"output": whole()["output"][:, :, -CHECKED:]},
            "dense": lambda: {"output": scaled_dot_product_attention(*ends, mask)},
        }
    _timing.check(calls, "dense", _timing.BOUND[options.dtype])


def window_row(length: int, passes: str, options: Namespace) -> _timing.Row:
    """The window, and torch's fused attention to the whole past."""
    inputs = _timing.random_inputs((options.batch, HEADS, length, WIDTH), options)
    attend = partial(windowed_attention, window=WINDOW, is_causal=True)
    check_window(attend, inputs, options)
    calls = {"windowed": _timing.build_call(attend, inputs, passes)}
    if options.device == "cuda" or length <= LONGEST_FULL:
        calls["torch causal"] = _timing.build_call(partial(F.scaled_dot_product_attention, is_causal=True), inputs, passes)
    row = _timing.measure(calls, options, {"length": length, "pass": passes}, counted="windowed")
    tokens = options.batch * length
    row.notes |= {
        "windowed, µs a token": f"{1e6 * median(row.seconds['windowed']) / tokens:.2f}",
        "windowed saves, MiB": _mebibytes(attend, inputs),
    }
    return row


def _mebibytes(attend: _timing.Attend, inputs: list[Tensor]) -> str:
    return f"{_timing.saved_bytes(attend, inputs) / 2**20:.1f}"


def main() -> None:
    parser = _timing.parser(__doc__.splitlines()[0], batch=1)
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS, help="of tiled against eager")
    parser.add_argument("--window-lengths", type=int, nargs="*", default=WINDOW_LENGTHS, help="of the window")
    options = parser.parse_args()
    header = _timing.start(options)
    lengths, window_lengths = options.lengths, options.window_lengths
    if options.quick:
        lengths, window_lengths = lengths[:1], window_lengths[:1]

    print(header)
    cases = list(product(lengths, (False, True), _timing.PASSES))
    rows = [tiled_row(*case, options) for case in tqdm(cases, desc="tiled", unit="row")]
    if rows:
        ratios = ("eager", "tiled"), ("torch", "tiled")
        print(f"\n### Tiled against eager\n\n{_timing.table(rows, ('torch', 'eager', 'tiled'), ratios)}")
    cases = list(product(window_lengths, _timing.PASSES))
    rows = [window_row(*case, options) for case in tqdm(cases, desc=f"window {WINDOW}", unit="row")]
    if rows:
        table = _timing.table(rows, ("torch causal", "windowed"), [("torch causal", "windowed")])
        print(f"\n### A window of {WINDOW} against torch's causal attention\n\n{table}")


if __name__ == "__main__":
    main()
