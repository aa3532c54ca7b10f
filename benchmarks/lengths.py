"""Every form of attention over the length of the sequence: time, and memory kept for the backward pass.

    python benchmarks/lengths.py                 # CPU, one thread, float32: about six minutes
    python benchmarks/lengths.py --device cuda   # bfloat16, with the peak of the memory
    python benchmarks/lengths.py --quick         # two short lengths; writes no file

All forms are causal, as all of them can be, and run on the same tensors in turns. First each one's output and gradients are
compared with a dense reference of its own at length 1024, and a wrong one stops the run. A form is left out at lengths beyond
one at which a call took more than 4 s, and where it would keep more than 8 GiB. Prints Markdown tables, asserts nothing about
time, and writes lengths.csv beside this file, where rows of the other device stay as they are.

Columns of lengths.csv, a row for each form, pass and length:
    device, form                 "cpu" or "cuda"; a key of FORMS
    pass                         "forward" (no gradients), or "forward + backward"
    batch, heads, length, width  of query, key and value: (batch, heads, length, width)
    dtype, threads               of the tensors; of torch on the CPU
    ms, ms_low, ms_high          milliseconds for a call: median over the rounds, and the middle half of them
    rounds                       number of rounds; 0 where the form was left out
    saved_bytes                  what the graph keeps for the backward pass, inputs and output included, each storage once
    peak_bytes                   of GPU memory at a call's height, beside what was taken before; empty on a CPU
    left_out                     why the row has no figures; empty where it has
    date, machine, python, torch when, on which processor or GPU, and with which versions
"""

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import _timing
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from lib import masks
from lib.attention import scaled_dot_product_attention
from lib.efficient import linear_attention, segmented_attention, strided_attention, windowed_attention
from lib.study import records

RESULTS = Path(__file__).with_suffix(".csv")
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
HEADS, WIDTH = 4, 64
WINDOW, STRIDE, SEGMENT = 256, 64, 128
CHECKED = 1024  # the length at which every form meets its reference
LONGEST_CALL = 4.0  # seconds
MOST_SAVED = 8 * 2**30  # bytes

dense = partial(scaled_dot_product_attention, backend="eager")
FORMS: dict[str, _timing.Attend] = {
    "eager": partial(dense, is_causal=True),
    "torch": partial(F.scaled_dot_product_attention, is_causal=True),
    "tiled": partial(scaled_dot_product_attention, is_causal=True, backend="tiled"),
    "windowed": partial(windowed_attention, window=WINDOW, is_causal=True),
    "strided": partial(strided_attention, stride=STRIDE, is_causal=True),
    "segmented": partial(segmented_attention, segment=SEGMENT, is_causal=True),
    "linear": partial(linear_attention, is_causal=True),
}


def masked(make: Callable[..., Tensor], *size: int) -> _timing.Attend:
    """Attention over all scores under a mask that `make(L, *size)` gives."""
    return lambda query, key, value: dense(query, key, value, make(query.size(-2), *size, device=query.device))


def dense_segments(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Segments by one mask: behind the keys stand the means of all segments, each with the score of as many keys more."""
    L = query.size(-2)
    key, value = (torch.cat([x, x.unflatten(2, (-1, SEGMENT)).mean(dim=3)], dim=2) for x in (key, value))
    segment = torch.arange(L, device=query.device) // SEGMENT
    own = (segment[:, None] == segment) & masks.causal(L, device=query.device)
    earlier = torch.arange(L // SEGMENT, device=query.device) < segment[:, None]
    allowed = torch.cat([own, earlier], dim=1)
    weight = torch.tensor([1.0, SEGMENT], device=query.device).log().repeat_interleave(torch.tensor([L, L // SEGMENT]))
    return dense(query, key, value, torch.where(allowed, weight, -torch.inf))


REFERENCES: dict[str, _timing.Attend] = {
    **dict.fromkeys(("eager", "torch", "tiled"), masked(masks.causal)),
    "windowed": masked(masks.sliding_window, WINDOW),
    "strided": masked(masks.strided, STRIDE),
    "segmented": dense_segments,
    "linear": partial(linear_attention, is_causal=True, form="parallel"),
}


def check_forms(options: Namespace) -> None:
    """Output and gradients of every form against those of its reference."""
    inputs = _timing.random_inputs((options.batch, HEADS, CHECKED, WIDTH), options)
    for form, attend in FORMS.items():
        calls = {
            name: _timing.build_call(a, inputs, _timing.PASSES[1]) for name, a in ((form, attend), ("dense", REFERENCES[form]))
        }
        _timing.check(calls, "dense", _timing.BOUND[options.dtype])


def figures(seconds: list[float]) -> dict[str, object]:
    """Median and middle half of the rounds, in milliseconds."""
    low, _, high = quantiles(seconds, n=4)
    shown = {"ms": median(seconds), "ms_low": low, "ms_high": high}
    return {name: float(f"{1000 * value:.4g}") for name, value in shown.items()} | {"rounds": len(seconds)}


def measure_length(length: int, left_out: dict[tuple[str, str], str], options: Namespace) -> list[dict]:
    """A row for each form and pass, the forms in turns.

    Args:
        left_out: (form, pass) -> why it no longer runs; what this length shows about longer ones is added.
    """
    shape = options.batch, HEADS, length, WIDTH
    inputs = _timing.random_inputs(shape, options)
    setting = dict(zip(("batch", "heads", "length", "width"), shape, strict=True))
    rows = []
    for passes in _timing.PASSES:
        running = [form for form in FORMS if (form, passes) not in left_out]
        calls = {form: _timing.build_call(FORMS[form], inputs, passes) for form in running}
        seconds = _timing.measure(calls, options, {}, counted=running[0]).seconds if calls else {}
        for form in FORMS:
            row = {"device": options.device, "form": form, "pass": passes, **setting, "dtype": str(options.dtype)[6:]}
            row |= {"threads": options.threads, **dict.fromkeys(("ms", "ms_low", "ms_high")), "rounds": 0}
            row |= {"saved_bytes": None, "peak_bytes": None, "left_out": left_out.get((form, passes))}
            rows.append(row)
            if form not in calls:
                continue
            row |= figures(seconds[form])
            if passes == _timing.PASSES[1]:
                row["saved_bytes"] = _timing.saved_bytes(FORMS[form], inputs)
            if options.device == "cuda":
                row["peak_bytes"] = _timing.peak_bytes(calls[form])
            if median(seconds[form]) > LONGEST_CALL:
                left_out[form, passes] = f"a call at length {length} takes over {LONGEST_CALL:g} s"
    eager = next(row["saved_bytes"] for row in reversed(rows) if row["form"] == "eager")  # it alone grows with the square
    if 4 * (eager or 0) > MOST_SAVED:
        left_out |= {("eager", passes): f"would keep over {MOST_SAVED / 2**30:g} GiB" for passes in _timing.PASSES}
    return rows


def write(rows: list[dict], options: Namespace, path: Path) -> None:
    """Put these rows in the place of the ones that this device had in the file."""
    stamp = records.stamp()
    if options.device == "cuda":
        stamp["machine"] = torch.cuda.get_device_name()
    new, old = pd.DataFrame([row | stamp for row in rows]), records.read(path)
    if not old.empty:
        new = pd.concat([part for part in (old[old["device"] != options.device], new) if not part.empty])
    new.astype({"saved_bytes": "Int64", "peak_bytes": "Int64"}).to_csv(path, index=False)


def tables(rows: list[dict]) -> str:
    """Milliseconds of each pass, and what is saved, over the length."""
    parts = []
    for title, passes, column, unit in (
        ("Forward, ms", _timing.PASSES[0], "ms", 1),
        ("Forward + backward, ms", _timing.PASSES[1], "ms", 1),
        ("Saved for the backward pass, MiB", _timing.PASSES[1], "saved_bytes", 2**20),
    ):
        found = {(row["length"], row["form"]): row[column] for row in rows if row["pass"] == passes}
        lines = [["length", *FORMS]]
        for length in sorted({length for length, _ in found}):
            cells = (found[length, form] for form in FORMS)
            lines.append([str(length), *(_timing.NO_VALUE if x is None else f"{x / unit:.1f}" for x in cells)])
        parts.append(f"#### {title}\n\n{_timing.markdown(lines)}")
    return "\n\n".join(parts)


def main() -> None:
    parser = _timing.parser(__doc__.splitlines()[0], batch=1, budget=4.0, min_rounds=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="in rising order")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file for the rows; not written with --quick")
    options = parser.parse_args()
    header = _timing.start(options)
    check_forms(options)
    rows, left_out = [], {}
    for length in tqdm(options.lengths[:2] if options.quick else options.lengths, unit="length"):
        rows += measure_length(length, left_out, options)
    print(f"{header}\n\n{tables(rows)}")
    if not options.quick:
        write(rows, options, options.out)


if __name__ == "__main__":
    main()
