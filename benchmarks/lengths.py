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
    length, batch, heads, width  the tensors are (batch, heads, length, width)
    dtype, threads               of the tensors; of torch on the CPU
    ms, ms_low, ms_high          milliseconds for a call: median over the rounds, and the middle half of them
    rounds                       number of rounds; 0 where the form was left out
    saved_bytes                  what the graph keeps between forward and backward, inputs and output included, each storage once
    peak_bytes                   of GPU memory at a call's height, beside what was taken before; empty on a CPU
    left_out                     why the row has no figures; empty where it has
    date, machine, python, torch when, on which processor or GPU, and with which versions
"""

from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
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

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]

dense = partial(scaled_dot_product_attention, backend="eager")
FORMS: dict[str, Attend] = {
    "eager": partial(dense, is_causal=True),
    "torch": partial(F.scaled_dot_product_attention, is_causal=True),
    "tiled": partial(scaled_dot_product_attention, is_causal=True, backend="tiled"),
    "windowed": partial(windowed_attention, window=WINDOW, is_causal=True),
    "strided": partial(strided_attention, stride=STRIDE, is_causal=True),
    "segmented": partial(segmented_attention, segment=SEGMENT, is_causal=True),
    "linear": partial(linear_attention, is_causal=True),
}


def main() -> None:
    raise NotImplementedError


if __name__ == "__main__":
    main()
