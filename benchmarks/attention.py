"""One attention of ours against torch's function on the same inputs: time of a forward pass, and of forward and backward.

    python benchmarks/attention.py                 # CPU, one thread, float32
    python benchmarks/attention.py --device cuda   # bfloat16

Prints a Markdown table; README.md beside this file says how to read it. It asserts nothing about time, but first checks every
contender's output and gradients against torch's and stops at a wrong one. Torch runs twice: its ratio to itself is the noise.
"""

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from statistics import median

import _timing
import torch
import torch.nn.functional as F
from torch import Tensor

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
TIMES = ("torch", "auto")
RATIOS = (("auto", "torch"), ("torch again", "torch"), ("eager", "torch"))


def build_calls(length: int, setting: str, passes: str, options: Namespace) -> _timing.Calls:
    """One function for each contender, over the same tensors: it returns the output, after a backward the gradients too."""
    torch.manual_seed(0)
    backward = passes != "forward"
    shape, placed = (options.batch, HEADS, length, WIDTH), {"device": options.device, "dtype": options.dtype}
    inputs = [torch.randn(shape, requires_grad=backward, **placed) for _ in range(3)]
    upstream = torch.randn(shape, **placed)
    # The last quarter of the keys is padding.
    padding = masks.padding([length * 3 // 4] * options.batch, length, device=options.device)
    mask = padding if setting == "boolean mask" else None

    def call(attention: Callable[..., Tensor]) -> _timing.Answer:
        with torch.set_grad_enabled(backward):
            output = attention(*inputs, attn_mask=mask, is_causal=setting == "causal")
        if not backward:
            return {"output": output}
        return {"output": output} | dict(zip(("dQ", "dK", "dV"), torch.autograd.grad(output, inputs, upstream), strict=True))

    return {name: partial(call, attention) for name, attention in CONTENDERS.items()}


def main() -> None:
    parser = _timing.parser(__doc__.splitlines()[0], batch=1)  # 1 shows most of what a call costs besides its sums
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    options = parser.parse_args()
    header = _timing.start(options)
    rows = _timing.grid(build_calls, options, SETTINGS, PASSES, lambda _: "torch", "auto")
    print(f"{header}\n\n{_timing.table(rows, TIMES, RATIOS)}\n")
    worst = max(rows, key=lambda row: median(row.ratios("auto", "torch")))
    ratio = median(worst.ratios("auto", "torch"))
    print(f"Slowest beside torch: {ratio:.3f}, at {', '.join(worst.labels.values())}.")


if __name__ == "__main__":
    main()
