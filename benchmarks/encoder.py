"""Our encoder against torch's and x-transformers', with the same weights: inference, and one step of training.

    python benchmarks/encoder.py                   # CPU, one thread, float32
    python benchmarks/encoder.py --device cuda     # bfloat16
    python benchmarks/encoder.py --pre-norm        # the other place of the norms, with gelu

Prints a Markdown table; README.md beside this file says how to read it. It asserts nothing about time, but first checks every
contender's output and gradients against torch's and stops at a wrong one.
"""

from argparse import Namespace
from collections.abc import Callable
from itertools import product

import _timing
import torch
from torch import Tensor, nn
from tqdm import tqdm

from lib import masks
from lib.interop import from_torch

LENGTHS = (128, 512)
LAYERS, D_MODEL, HEADS, FEED_FORWARD = 6, 512, 8, 2048  # the base model of Vaswani et al. 2017, table 3
SETTINGS = ("inference", "inference, half padding", "training", "training, dropout 0.1")
TIMES = ("torch", "torch, no fast path", "x-transformers", "ours", "ours, skipping")
RATIOS = (*((name, "ours") for name in TIMES[:3]), ("torch", "ours, skipping"), ("ours again", "ours"))
BOUND = {torch.float32: 1e-4, torch.bfloat16: 2**-4}  # six layers one after another, each with its rounding

Encode = Callable[[Tensor, Tensor | None], Tensor]  # x (B, L, d_model), mask of the real tokens (B, L) or None


def build_models(setting: str, options: Namespace) -> dict[str, tuple[nn.Module, Encode]]:
    """Each contender's module with the same weights, and how it is called."""
    torch.manual_seed(0)
    dropout, norm = (0.1 if "dropout" in setting else 0.0), None
    if options.pre_norm:
        norm = nn.LayerNorm(D_MODEL)
    activation = "gelu" if options.pre_norm else "relu"
    choices = {"norm_first": options.pre_norm, "batch_first": True}
    layer = nn.TransformerEncoderLayer(D_MODEL, HEADS, FEED_FORWARD, dropout, activation, **choices)
    theirs = nn.TransformerEncoder(layer, LAYERS, norm, enable_nested_tensor=not options.pre_norm)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.dim() == 2:  # torch starts all layers as copies of one
                nn.init.xavier_uniform_(parameter)
    ours = from_torch(theirs)

    def torch_encode(fast: bool, x: Tensor, real: Tensor | None) -> Tensor:
        torch.backends.mha.set_fastpath_enabled(fast)
        return theirs(x, src_key_padding_mask=None if real is None else ~real)

    models = {
        "torch": (theirs, lambda x, real: torch_encode(True, x, real)),
        "ours": (ours, lambda x, real: ours(x, None if real is None else real[:, None, None])),
    }
    models["ours again"] = models["ours"]
    if "padding" in setting:
        skipping = from_torch(theirs)
        skipping.skip_padding = True
        models["ours, skipping"] = skipping, lambda x, real: skipping(x, real[:, None, None])
    if "inference" in setting:  # the fast path is torch's for inference alone
        models["torch, no fast path"] = theirs, lambda x, real: torch_encode(False, x, real)
    if _timing.missing("x-transformers") is None:
        other = x_transformers_encoder(theirs, dropout, options.pre_norm)
        models["x-transformers"] = other, lambda x, real: other(x, mask=real)
    for module, _ in models.values():
        module.to(options.device, options.dtype).train("training" in setting)
    return models


def x_transformers_encoder(theirs: nn.TransformerEncoder, dropout: float, pre_norm: bool) -> nn.Module:
    """Their encoder with torch's weights. It has no bias in attention and norms, where torch's are 0 at the start."""
    from x_transformers import Encoder

    options = {"attn_flash": True, "attn_dim_head": D_MODEL // HEADS, "pre_norm": pre_norm}
    options |= {"ff_custom_activation": nn.GELU() if pre_norm else nn.ReLU()}
    options |= {"attn_dropout": dropout, "ff_dropout": dropout, "layer_dropout": 0.0}
    other = Encoder(dim=D_MODEL, depth=LAYERS, heads=HEADS, **options)
    state = other.state_dict()
    for i, layer in enumerate(theirs.layers):
        attention, network = f"layers.{2 * i}.1", f"layers.{2 * i + 1}.1.ff"
        in_proj = layer.self_attn.in_proj_weight.chunk(3)
        state |= {f"{attention}.to_{name}.weight": weight for name, weight in zip("qkv", in_proj, strict=True)}
        state |= {f"{attention}.to_out.weight": layer.self_attn.out_proj.weight}
        for target, source in ((f"{network}.0.0", layer.linear1), (f"{network}.2", layer.linear2)):
            state |= {f"{target}.{name}": parameter for name, parameter in source.named_parameters()}
    other.load_state_dict(state)
    return other


def build_calls(length: int, setting: str, options: Namespace) -> tuple[_timing.Calls, _timing.Calls]:
    """What is checked, and what is timed: in training without dropout and with it, a step of the optimizer included."""
    models = build_models(setting, options)
    training = "training" in setting
    placed = {"device": options.device, "dtype": options.dtype}
    x = torch.randn(options.batch, length, D_MODEL, requires_grad=training, **placed)
    upstream = torch.randn_like(x)
    real = None
    if "padding" in setting:  # lengths from full down to almost nothing, half of all tokens
        lengths = [max(1, round(length * (1 - i / options.batch))) for i in range(options.batch)]
        real = masks.padding(lengths, length, device=options.device)[:, 0, 0]

    def infer(encode: Encode) -> _timing.Answer:
        with torch.inference_mode():
            output = encode(x, real)
            return {"output": output if real is None else output * real[..., None]}  # what is said of padding means nothing

    def differentiate(encode: Encode) -> _timing.Answer:
        output = encode(x, real)
        return {"output": output, "dx": torch.autograd.grad(output, x, upstream)[0]}

    def step(encode: Encode, optimizer: torch.optim.Optimizer) -> _timing.Answer:
        optimizer.zero_grad()
        output = encode(x, real)
        output.backward(upstream)
        optimizer.step()
        return {}

    checked, timed = {}, {}
    for name, (module, encode) in models.items():
        if training:
            checked[name] = lambda encode=encode: differentiate(encode)
            optimizer = torch.optim.AdamW(module.parameters(), lr=1e-6)
            timed[name] = lambda encode=encode, optimizer=optimizer: step(encode, optimizer)
        else:
            checked[name] = timed[name] = lambda encode=encode: infer(encode)
    return checked, timed


def main() -> None:
    parser = _timing.parser(__doc__.splitlines()[0], batch=4, budget=20.0)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--pre-norm", action="store_true", help="norms before the sub-layers, and gelu; else after, and relu")
    options = parser.parse_args()
    header = _timing.start(options, "x-transformers")
    lengths = options.lengths[:1] if options.quick else options.lengths

    rows = []
    for length, setting in tqdm(list(product(lengths, SETTINGS)), unit="row"):
        checked, timed = build_calls(length, setting, options)
        if "dropout" not in setting:  # its draws differ
            _timing.check(checked, "torch", BOUND[options.dtype])
        rows.append(_timing.measure(timed, options, {"length": length, "setting": setting}, counted="ours"))
    print(f"{header}\n\n{_timing.table(rows, TIMES, RATIOS)}")
    if reason := _timing.missing("x-transformers"):
        print(f"\n{reason}")


if __name__ == "__main__":
    main()
