"""One attention of ours against torch's function on the same inputs: time of a forward pass, and of forward and backward.

    python benchmarks/attention.py                 # CPU, one thread, float32
    python benchmarks/attention.py --device cuda   # bfloat16

Prints a Markdown table; README.md beside this file says how to read it. It asserts nothing about time, but first checks every
contender's output and gradients against torch's and stops at a wrong one. Torch runs twice: its ratio to itself is the noise.
"""

from argparse import Namespace
from functools import partial
from statistics import median

import _timing
import torch.nn.functional as F

from lib import masks
from lib.attention import scaled_dot_product_attention

LENGTHS = (128, 256, 512, 1024, 2048)
HEADS, WIDTH = 8, 64  # the base model of Vaswani et al. 2017, table 3
SETTINGS = ("full", "causal", "boolean mask")
CONTENDERS = {
    "torch": F.scaled_dot_product_attention,
    "torch again": F.scaled_dot_product_attention,
    "auto": partial(scaled_dot_product_attention, backend="auto"),
    "eager": partial(scaled_dot_product_attention, backend="eager"),
}
TIMES = ("torch", "auto")
RATIOS = (("auto", "torch"), ("torch again", "torch"), ("eager", "torch"))


def build_calls(length: int, setting: str, passes: str, options: Namespace) -> _timing.Calls:
    """One function for each contender, over the same tensors: it returns the output, after a backward the gradients too."""
    inputs = _timing.random_inputs((options.batch, HEADS, length, WIDTH), options)
    # The last quarter of the keys is padding.
    padding = masks.padding([length * 3 // 4] * options.batch, length, device=options.device)
    seen = {"attn_mask": padding if setting == "boolean mask" else None, "is_causal": setting == "causal"}
    return {name: _timing.build_call(partial(attention, **seen), inputs, passes) for name, attention in CONTENDERS.items()}


def main() -> None:
    parser = _timing.parser(__doc__.splitlines()[0], batch=1)  # 1 shows most of what a call costs besides its sums
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    options = parser.parse_args()
    header = _timing.start(options)
    rows = _timing.grid(build_calls, options, SETTINGS, _timing.PASSES, lambda _: "torch", "auto")
    print(f"{header}\n\n{_timing.table(rows, TIMES, RATIOS)}\n")
    worst = max(rows, key=lambda row: median(row.ratios("auto", "torch")))
    ratio = median(worst.ratios("auto", "torch"))
    print(f"Slowest beside torch: {ratio:.3f}, at {', '.join(worst.labels.values())}.")


if __name__ == "__main__":
    main()
