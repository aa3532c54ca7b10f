"""A Transformer's architecture, read off the model itself: which parts its forward pass calls, in which order, and how large.

Shapes: B sequences, S source tokens, L target tokens, V words, d_model the width of a token.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch
from torch import nn

from lib.layers import FeedForward
from lib.multihead import MultiHeadAttention
from lib.stacks import Embedding
from lib.study.plots import BLUE, GRAY, GREEN, INK, ORANGE, PURPLE, VERMILION, Box, arrow, box, drawing
from lib.transformer import Transformer

COLORS = {
    "embedding": GRAY,
    "self-attention": BLUE,
    "masked self-attention": BLUE,
    "cross-attention": VERMILION,
    "feed-forward": GREEN,
    "norm": ORANGE,
    "output": PURPLE,
}


class Part(NamedTuple):
    """One part, as the forward pass met it."""

    stack: str  # "source", "encoder", "target", "decoder", "output"
    layer: int | None  # from 0, in encoder and decoder
    kind: str  # a key of COLORS
    size: str  # in words
    parameters: int
    inputs: tuple[tuple[int, ...], ...]  # shapes: of the tokens, then of the memory where it reads one
    output: tuple[int, ...]  # shape


def walk(model: Transformer, S: int = 7, L: int = 5) -> list[Part]:
    """Send S source and L target tokens through the model, and note every part in the order in which it is called.

    Hooks on the model's modules tell the order, so that a model built otherwise gives another list. What is shared counts where
    it is met first: the embedding of the target, and a tied output, have no parameters of their own then.
    """
    names = {module: name for name, module in model.named_modules()}
    found: list[Part] = []
    met: set[nn.Module] = set()

    def note(module: nn.Module, inputs: tuple, output) -> None:
        output = output[0] if isinstance(output, tuple) else output
        kind, size = _kind(names[module], module, model)
        stack, layer = _place(names[module], found)
        shapes = tuple(tuple(x.shape) for x in inputs if isinstance(x, torch.Tensor))
        parameters = 0 if module in met else _count(module)  # one that is called again has no further ones
        met.add(module)
        found.append(Part(stack, layer, kind, size, parameters, shapes, tuple(output.shape)))

    kinds = (Embedding, MultiHeadAttention, FeedForward, nn.LayerNorm)
    hooks = [module.register_forward_hook(note) for module in names if isinstance(module, kinds) or module is model.output]
    device, was_training = next(model.parameters()).device, model.training
    try:
        with torch.no_grad():
            tokens = (torch.zeros(1, n, dtype=torch.long, device=device) for n in (S, L))
            logits = model.eval()(*tokens)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    if model.output is None:
        size = f"{model.config.d_model:,} → {logits.size(-1):,}, shared"
        found.append(Part("output", None, "output", size, 0, (found[-1].output,), tuple(logits.shape)))
    return found


def first_layers(parts: Sequence[Part]) -> list[Part]:
    """The parts without those of second and later layers."""
    return [part for part in parts if not part.layer]


def num_layers(parts: Sequence[Part], stack: str) -> int:
    """Number of layers of "encoder" or "decoder"."""
    return len({part.layer for part in parts if part.stack == stack and part.layer is not None})


def ledger(parts: Sequence[Part]) -> list[tuple[str, int, int]]:
    """Part, how often it is called, and the parameters of all of them together, in the order of the calls."""
    lines: dict[str, list[int]] = {}
    for part in parts:
        lines.setdefault(f"{part.stack}: {part.kind}", []).append(part.parameters)
    return [(name, len(each), sum(each)) for name, each in lines.items()]


def draw(parts: Sequence[Part]) -> Figure:
    """The encoder at the left, the decoder at the right, from the bottom up; of each stack one layer stands for all.

    Args:
        parts: from `walk`.
    """
    pre_norm = next(part for part in parts if part.stack == "decoder").kind == "norm"
    height = 8.7 if pre_norm else 7.7
    figure, ax = drawing(6.6, height)
    ends: dict[str, tuple[float, float]] = {}
    reads: list[Box] = []
    for x, before, stack in ((1.62, "source", "encoder"), (4.98, "target", "decoder")):
        [table] = [part for part in parts if part.stack == before]
        feet = box(ax, x, 0.75, f"embedding + positions\n{table.size}", width=2.3, height=0.55, color=GRAY, fontsize=11)
        ax.text(x, 0.2, f"{before} tokens", ha="center", va="center", fontsize=12)
        arrow(ax, (x, 0.32), feet.bottom)
        own = [part for part in parts if part.stack == stack]
        ends[stack], crossed = _layer(ax, x, feet.top, [part for part in own if part.layer == 0])
        reads += crossed
        high = ends[stack][1] + 0.13
        _frame(ax, x, 1.42, high, f"{stack}\n{num_layers(parts, stack)} layers")
        for norm in (part for part in own if part.layer is None):  # behind the last layer, where layers are pre-norm
            above = box(ax, x, high + 0.35, f"norm, {norm.size}", width=0.94, height=0.3, color=ORANGE, fontsize=10)
            arrow(ax, ends[stack], above.bottom)
            ends[stack] = above.top
    last = parts[-1]
    above = box(ax, 4.98, height - 0.4, f"output\n{last.size}", width=2.3, height=0.55, color=PURPLE, fontsize=11)
    arrow(ax, ends["decoder"], above.bottom)
    _memory(ax, ends["encoder"], reads)
    return figure


def _layer(ax: Axes, x: float, foot: tuple[float, float], parts: Sequence[Part]) -> tuple[tuple[float, float], list[Box]]:
    """Draw one layer upward from a foot; its upper end, and the boxes that read a memory."""
    last, reads, y = None, [], 1.78
    pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]  # a sub-layer and its norm, in the order of the calls
    for pair in pairs:
        start = (x, y - 0.36)
        for i, part in enumerate(pair):
            is_norm = part.kind == "norm"
            text = f"norm, {part.size}" if is_norm else f"{part.kind}\n{part.size}"
            drawn = box(ax, x, y, text, width=2.05, height=0.3 if is_norm else 0.52, color=COLORS[part.kind], fontsize=11)
            arrow(ax, foot if last is None else last, drawn.bottom)
            if part.kind == "cross-attention":
                reads.append(drawn)
            last, y = drawn.top, y + (0.55 if not is_norm else 0.58 if i == 0 else 0.41)
            if not is_norm:  # here the way around the sub-layer comes back
                plus = y - 0.03
                _residual(ax, x, start[1], plus)
                arrow(ax, drawn.top, (x, plus - 0.06))
                last, y = (x, plus + 0.07), y + 0.36
        y += 0.2
    return last, reads


def _residual(ax: Axes, x: float, low: float, high: float) -> None:
    """The residual connection: a line around a sub-layer, and the plus where both are added."""
    side = x - 1.18
    ax.plot([x, side, side], [low, low, high], color=INK, linewidth=1.6, linestyle="-")
    arrow(ax, (side, high), (x - 0.07, high))
    ax.add_patch(Circle((x, high), 0.09, facecolor="white", edgecolor=INK, linewidth=1.4, zorder=4))
    ax.text(x, high - 0.005, "+", ha="center", va="center", fontsize=12, zorder=5)


def _frame(ax: Axes, x: float, low: float, high: float, text: str) -> None:
    style = {"boxstyle": "round,pad=0,rounding_size=0.1", "facecolor": "none", "edgecolor": GRAY, "linewidth": 1.4}
    ax.add_patch(FancyBboxPatch((x - 1.32, low - 0.12), 2.6, high - low + 0.12, linestyle="--", **style))
    ax.text(x - 1.3, high + 0.08, text, ha="left", va="bottom", fontsize=11, weight="bold")


def _memory(ax: Axes, top: tuple[float, float], reads: Sequence[Box]) -> None:
    """The encoder's output goes to every cross-attention."""
    for read in reads:
        x, (_, y), over = 3.2, read.left, top[1] + 0.32
        ax.plot([top[0], top[0], x, x], [top[1], over, over, y], color=VERMILION, linewidth=2.4, linestyle="-")
        arrow(ax, (x, y), read.left, color=VERMILION, width=2.4)
        ax.text(2.35, over + 0.06, "memory", ha="center", va="bottom", fontsize=12, color=VERMILION)


def _place(name: str, found: Sequence[Part]) -> tuple[str, int | None]:
    """Stack and layer of a module from its name, such as "decoder.layers.0.norm1"."""
    words = name.split(".")
    if words[0] in ("encoder", "decoder"):
        return words[0], int(words[2]) if words[1] == "layers" else None
    if words[0] == "output":
        return "output", None
    return ("target" if any(part.stack == "encoder" for part in found) else "source"), None


def _kind(name: str, module: nn.Module, model: Transformer) -> tuple[str, str]:
    """What a module is, and its size in words."""
    if isinstance(module, Embedding):
        return "embedding", f"{module.tokens.num_embeddings:,} × {module.tokens.embedding_dim:,}"
    if isinstance(module, MultiHeadAttention):
        size = f"{module.num_heads} heads of width {module.d_k}"
        if name.endswith("cross_attn"):
            return "cross-attention", size
        return ("masked self-attention" if getattr(model, name.split(".")[0]).is_causal else "self-attention"), size
    if isinstance(module, FeedForward):
        inner, outer = module.linear2.in_features, module.linear2.out_features
        return "feed-forward", f"{outer:,} → {inner:,} → {outer:,}"
    if isinstance(module, nn.LayerNorm):
        return "norm", f"{module.normalized_shape[0]:,}"
    return "output", f"{module.in_features:,} → {module.out_features:,}"


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
