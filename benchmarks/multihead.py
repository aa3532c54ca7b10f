"""Our multi-head attention against torch's, with the same weights: a forward pass, and forward and backward.

    python benchmarks/multihead.py                 # CPU, one thread, float32
    python benchmarks/multihead.py --device cuda   # bfloat16

Prints a Markdown table; README.md beside this file says how to read it. It asserts nothing about time, but first checks every
contender's output and gradients against torch's and stops at a wrong one.
"""

from argparse import Namespace

import _timing
import torch
from torch import Tensor, nn

from lib import masks
from lib.interop import from_torch

LENGTHS = (128, 256, 512, 1024, 2048)
D_MODEL, HEADS = 512, 8  # the base model of Vaswani et al. 2017, table 3
SETTINGS = ("full", "padding", "causal", "causal + padding")
PASSES = ("forward", "forward + backward")
TIMES = ("torch", "torch, no fast path", "ours")
RATIOS = (("torch", "ours"), ("torch, no fast path", "ours"), ("ours again", "ours"))


def build_calls(length: int, setting: str, passes: str, options: Namespace) -> _timing.Calls:
    """One function for each contender over the same input. Gradients are those of the input and of every weight."""
    torch.manual_seed(0)
    backward = passes != "forward"
    placed = {"device": options.device, "dtype": options.dtype}
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True, **placed).train(backward)
    ours = from_torch(theirs)
    x = torch.randn(options.batch, length, D_MODEL, requires_grad=backward, **placed)
    upstream = torch.randn_like(x)

    # Of every other sequence the last quarter is padding.
    lengths = [length if i % 2 else length * 3 // 4 for i in range(options.batch)]
    padding = masks.padding(lengths, length, device=options.device) if "padding" in setting else None
    is_causal = "causal" in setting
    future = ~masks.causal(length, device=options.device) if is_causal else None  # torch: True = ignore
    ignored = None if padding is None else ~padding[:, 0, 0]

    def finish(output: Tensor, module: nn.Module) -> _timing.Answer:
        if not backward:
            return {"output": output.detach()}
        weights = (x, *module.parameters())  # both have them in the same order, in_proj before out_proj
        names = ("dx", "d in_proj", "d in_proj bias", "d out_proj", "d out_proj bias")
        return {"output": output} | dict(zip(names, torch.autograd.grad(output, weights, upstream), strict=True))

    def run_torch(fast: bool) -> _timing.Answer:
        torch.backends.mha.set_fastpath_enabled(fast)
        with torch.set_grad_enabled(backward):
            output, _ = theirs(x, x, x, ignored, need_weights=False, attn_mask=future, is_causal=is_causal)
            return finish(output, theirs)

    def run_ours() -> _timing.Answer:
        with torch.set_grad_enabled(backward):
            return finish(ours(x, mask=padding, is_causal=is_causal)[0], ours)

    calls = {"torch": lambda: run_torch(True), "ours": run_ours, "ours again": run_ours}
    if not backward:  # the fast path is torch's for inference alone
        calls["torch, no fast path"] = lambda: run_torch(False)
    return calls


def main() -> None:
    parser = _timing.parser(__doc__.splitlines()[0], batch=2)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    options = parser.parse_args()
    header = _timing.start(options)
    expected = {"forward": "torch, no fast path", "forward + backward": "torch"}
    rows = _timing.grid(build_calls, options, SETTINGS, PASSES, expected.get, "ours")
    print(f"{header}\n\n{_timing.table(rows, TIMES, RATIOS)}")


if __name__ == "__main__":
    main()
