"""What attention must give, computed a second time and by other means, and how far from it a result may lie.

`attention_by_loops` is equation 1 of Vaswani et al. 2017 in Python numbers, one query and one key at a time; nothing in it is
shared with the library. `same_dtype_attention` is the formula in tensors without any care, the yardstick for half precision.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
BOUND = {torch.float64: 1e-12, torch.float32: 2e-6}  # of one attention over inputs of unit size


@dataclass
class Exact:
    """In float64: output (B, H, L, d_v), weights (B, H, L, S), gradients of query, key, value, and of a (B, H, L, S) mask."""

    output: Tensor
    weights: Tensor
    gradients: tuple[Tensor, Tensor, Tensor]
    mask_gradient: Tensor


def attention_by_loops(query, key, value, mask=None, *, is_causal=False, scale=None, upstream=None) -> Exact:
    """Attention and its gradients for 4-D inputs, in float64. `upstream` is the gradient of the output, ones if not given."""
    q, k, v = (x.detach().cpu().double().numpy() for x in (query, key, value))
    (B, H, L, d_k), S = q.shape, k.shape[-2]
    group = H // k.shape[1]
    scale = 1 / math.sqrt(d_k) if scale is None else scale
    allowed = None if mask is None else np.broadcast_to(_as_numbers(mask), (B, H, L, S))

    weights = np.zeros((B, H, L, S))
    for b, h, i in np.ndindex(B, H, L):
        scores = {}
        for j in range(i + 1 if is_causal and i < S else S):
            bias = 0.0 if allowed is None else allowed[b, h, i, j]
            if bias > -math.inf:
                scores[j] = float(q[b, h, i] @ k[b, h // group, j]) * scale + bias
        highest = max(scores.values(), default=0.0)
        total = sum(math.exp(score - highest) for score in scores.values())
        for j, score in scores.items():
            weights[b, h, i, j] = math.exp(score - highest) / total

    output = np.zeros((B, H, L, v.shape[-1]))
    for b, h in np.ndindex(B, H):
        output[b, h] = weights[b, h] @ v[b, h // group]
    upstream = np.ones_like(output) if upstream is None else upstream.detach().cpu().double().numpy()
    return Exact(torch.from_numpy(output), torch.from_numpy(weights), *_gradients(q, k, v, weights, scale, upstream))


def _gradients(q, k, v, weights, scale, upstream) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """The chain rule by hand, one head after another."""
    dq, dk, dv, d_scores = (np.zeros_like(x) for x in (q, k, v, weights))
    group = q.shape[1] // k.shape[1]
    for b, h in np.ndindex(*q.shape[:2]):
        g = h // group
        d_weights = upstream[b, h] @ v[b, g].T
        mean = (weights[b, h] * d_weights).sum(axis=1, keepdims=True)
        d_scores[b, h] = weights[b, h] * (d_weights - mean)
        dq[b, h] = d_scores[b, h] @ k[b, g] * scale
        dk[b, g] += d_scores[b, h].T @ q[b, h] * scale
        dv[b, g] += weights[b, h].T @ upstream[b, h]
    return tuple(torch.from_numpy(x) for x in (dq, dk, dv)), torch.from_numpy(d_scores)


def _as_numbers(mask: Tensor) -> np.ndarray:
    """0 where a boolean mask allows, −inf where it forbids; a float mask as it is."""
    mask = mask.detach().cpu()
    return np.where(mask.numpy(), 0.0, -math.inf) if mask.dtype == torch.bool else mask.double().numpy()


def same_dtype_attention(query, key, value, mask=None, *, is_causal=False, scale=None) -> Tensor:
    """The formula with every step rounded to the dtype of the inputs: how well attention does without any care."""
    mask = None if mask is None else mask.to(query.device)
    group = query.size(1) // key.size(1)
    key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = query @ key.transpose(-2, -1) * scale
    hidden = torch.zeros_like(scores, dtype=torch.bool)
    if mask is not None and mask.dtype == torch.bool:
        hidden = hidden | ~mask
    elif mask is not None:
        scores, hidden = scores + mask.to(scores.dtype), hidden | (mask == -math.inf)
    if is_causal:
        hidden = hidden | torch.ones_like(hidden).triu(1)
    empty = hidden.all(dim=-1, keepdim=True)
    weights = scores.masked_fill(hidden, -math.inf).masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
    return weights @ value


def random_inputs(dtype, device="cpu", *, B=2, H=2, H_kv=None, L=5, S=None, d_k=8, d_v=None, grad=False) -> list[Tensor]:
    """query (B, H, L, d_k), key (B, H_kv, S, d_k) and value (B, H_kv, S, d_v) of unit normal numbers."""
    H_kv, S, d_v = H_kv or H, L if S is None else S, d_k if d_v is None else d_v
    shapes = (B, H, L, d_k), (B, H_kv, S, d_k), (B, H_kv, S, d_v)
    return [torch.randn(shape).to(device, dtype).requires_grad_(grad) for shape in shapes]


def furthest(actual: Tensor, expected: Tensor) -> float:
    """The largest distance between two tensors. NaN is infinitely far from all, and infinity from all but itself."""
    assert actual.shape == expected.shape, f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    actual, expected = actual.detach().cpu().double(), expected.detach().cpu().double()
    distance = torch.where(actual == expected, 0.0, (actual - expected).abs()).nan_to_num(nan=math.inf)
    return distance.max().item() if distance.numel() else 0.0


def assert_close(actual: Tensor, expected: Tensor, bound: float | None = None) -> None:
    """Within the bound of the dtype, absolute up to size 1 and relative above. Half precision has no bound of its own."""
    bound = BOUND[actual.dtype] if bound is None else bound
    size = max(1.0, expected.detach().abs().max().item()) if expected.numel() else 1.0
    distance = furthest(actual, expected)
    assert distance <= bound * size, f"{distance:.3g} away, at most {bound * size:.3g} allowed"


def assert_as_good_as(ours: Tensor, careless: Tensor, exact: Tensor, *, factor: int) -> None:
    """The rule for half precision: at most `factor` times as far from float64 as the careless form in the same dtype."""
    error, yardstick = furthest(ours, exact), furthest(careless, exact)
    assert error <= factor * yardstick + 1e-5, f"{error:.3g} away, the careless form {yardstick:.3g}"


def assert_accurate(output: Tensor, inputs: list[Tensor], mask=None, **options) -> None:
    """The output of attention against the loops: by its bound in float64 and float32, by the rule in half precision."""
    exact = attention_by_loops(*inputs, mask, **options).output
    if output.dtype in BOUND:
        assert_close(output, exact)
    else:
        assert_as_good_as(output, same_dtype_attention(*inputs, mask, **options), exact, factor=2)
