"""How far attention sees: the links of one layer, what several layers reach over them, and how many steps two tokens are apart.

A pattern is an (n, n) boolean mask, True = may attend, whose diagonal is True: a residual connection keeps what a token holds.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lib import masks


def segments(n: int, segment: int) -> Tensor:
    """(n, n) what `lib.efficient.segmented_attention` lets through, causal: its own segment, and earlier ones as summaries."""
    place = torch.arange(n) // segment
    return (place[:, None] > place) | masks.blocks(n, segment, causal=True)


def patterns(n: int, part: int) -> dict[str, Tensor]:
    """The causal patterns of the chapter, with this window, stride and segment."""
    window, stride = masks.sliding_window(n, part), masks.strided(n, part)
    return {
        "full": masks.causal(n),
        "window": window,
        "stride": stride,
        "window + stride": window | stride,
        "segments": segments(n, part),
    }


def links_per_row(name: str, pattern: Tensor, part: int) -> Tensor:
    """(n,) how many scores each query has. A summary is one score for a whole segment."""
    if name != "segments":
        return pattern.sum(dim=-1)
    place = torch.arange(len(pattern))
    return place % part + 1 + place // part


def steps_apart(pattern: Tensor) -> Tensor:
    """(n, n) layers until query i has seen token j, 0 on the diagonal; 0 off it where it never will."""
    n = len(pattern)
    reached, steps = torch.eye(n, dtype=torch.bool), torch.zeros(n, n, dtype=torch.long)
    for step in range(1, n + 1):
        wider = (reached.float() @ pattern.float()) > 0
        if torch.equal(wider, reached):
            break
        steps[wider & ~reached] = step
        reached = wider
    return steps


def after_layers(pattern: Tensor, layers: int) -> Tensor:
    """(n, n) what each query has seen after so many layers of one pattern."""
    return torch.linalg.matrix_power(pattern.double(), layers) > 0


def gradient_at_the_end(attend: Callable[[Tensor, Tensor, Tensor], Tensor], n: int, layers: int, *, seed: int = 0) -> Tensor:
    """How much the last output of a stack of residual attention layers moves with each input, (n,) in float64.

    Args:
        attend: query, key, value (1, 2, n, 8) -> (1, 2, n, 8), causal.
        layers: of width 16, with random projections.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, n, 16, dtype=torch.float64, generator=generator, requires_grad=True)
    h = x
    for _ in range(layers):
        w = torch.randn(16, 48, dtype=torch.float64, generator=generator) / 4
        parts = (h @ w).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)  # (3, 1, heads, n, 8)
        h = h + attend(*parts).transpose(1, 2).flatten(2)
    (gradient,) = torch.autograd.grad(h[0, -1].square().sum(), x)
    return gradient[0].norm(dim=-1)
