"""Scaled dot-product attention, and one head of self-attention over it. All other attention in the library rests on this file.

Shapes, here and everywhere:
    B       sequences in the batch
    H       heads of the query; H_kv heads of key and value
    L, S    number of queries; number of keys (and values)
    d_k     width of a query and of a key
    d_v     width of a value
    d_model width of a token's vector in the model
"""

import math
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from lib import masks
from lib.inputs import autocast_inputs, check_inputs, without_autocast
from lib.tiled import tiled_attention

# Torch's fused kernels without cuDNN's: with an explicit mask its bfloat16 gradient can be NaN (pytorch#196678).
_SOUND_WITH_A_MASK = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

# Torch's own function, bound now: a reader may put ours in its place, and a drop-in must not end up calling itself.
_torch_attention = F.scaled_dot_product_attention

BACKENDS = ("auto", "eager", "sdpa", "tiled")


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    need_weights: bool = False,
    backend: str = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(query · keyᵀ · scale) · value: each query takes a mean of the values, weighted by its match with the keys.

    A drop-in for `torch.nn.functional.scaled_dot_product_attention`: same arguments, same order, same meaning. It adds the
    weights, gives a row without any allowed key the output 0 on every path, and joins a mask with `is_causal`.

    Args:
        query: (B, H, L, d_k). Any number of leading axes will do, as in torch.
        key: (B, H, S, d_k), or (B, H_kv, S, d_k) with `enable_gqa`.
        value: (B, H, S, d_v), or (B, H_kv, S, d_v) with `enable_gqa`.
        attn_mask: boolean, True = may attend, or float, added to the scores. (L, S) or (B or 1, H or 1, L or 1, S).
            Float masks are read in float32 (float64 beside float64 inputs): what is −inf there is not attended to. Only
            CUDA's fused kernels read them in the dtype of the query.
        dropout_p: probability of dropping a weight. Applied whenever it is above 0: the function has no training mode.
        is_causal: query i sees keys 0 … i (aligned to the upper left when L ≠ S, as in torch). With `attn_mask`, both hold.
        scale: factor of the scores; 1/√d_k when not given.
        enable_gqa: query heads share key and value heads, H/H_kv neighbors each.
        need_weights: return the weights too. They are (B, H, L, S), taken before dropout, so their rows sum to 1, or to 0
            where a row has nothing to attend to.
        backend: "eager" forms the weights, in float32 for half-precision inputs; "sdpa" is torch's fused function, which
            never does; "tiled" is ours, which does not either, with a backward pass of its own (`lib.tiled`); "auto" takes
            "sdpa" unless the weights are asked for.

    Returns:
        (B, H, L, d_v), or that and the weights (B, H, L, S).

    Raises:
        TypeError: inputs that are not floating point or differ in dtype; a mask that is neither boolean nor float; a scale
            that is a tensor (to learn one, multiply the query by it).
        ValueError: shapes that do not fit, naming them; an unknown backend; weights asked of "sdpa" or "tiled".

    Note:
        Masked positions get weight 0, and 0 · NaN is NaN: a NaN or an infinity stored in a masked *value*, and on some backends
        in a masked *key*, still spoils the output, as in torch. Finite rubbish does not.
        A large finite number in place of −inf in your own float mask is just a number: a row full of it is not masked at all.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1.
    """
    query, key, value = autocast_inputs(query, key, value)
    scores_shape = check_inputs(query, key, value, dropout_p, enable_gqa)
    if attn_mask is not None:
        masks.check(attn_mask, scores_shape)
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    if need_weights and backend in ("sdpa", "tiled"):
        raise ValueError(f'backend="{backend}" never forms the weights. With need_weights=True use backend="auto" or "eager".')

    if isinstance(scale, Tensor):  # fused kernels would take it as a number, and its gradient would be lost
        raise TypeError("scale is a number, got a tensor. To learn a scale, multiply the query by it and pass scale=1.0.")
    if scale is None:
        scale = 1 / math.sqrt(max(query.size(-1), 1))  # vectors of width 0 match equally, as in torch
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        # Half precision would round a large bias away. Every step below reads the same numbers, rows of −inf included.
        attn_mask = attn_mask.to(torch.promote_types(query.dtype, torch.float32))
    if backend == "tiled":
        return tiled_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if is_causal and (attn_mask is not None or need_weights or backend == "eager"):
        L, S = scores_shape[-2:]
        attn_mask = masks.combine(attn_mask, masks.causal(L, S, offset=0, device=query.device))
        is_causal = False

    if need_weights or backend == "eager":
        output, weights = _eager(query, key, value, attn_mask, dropout_p, scale, enable_gqa)
        return (output, weights) if need_weights else output
    return _fused(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _eager(query, key, value, mask, dropout_p, scale, enable_gqa) -> tuple[Tensor, Tensor]:
    """The formula as it is written, with the weights in sight: O(L · S) memory."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.size(-3) // x.size(-3), dim=-3) for x in (key, value))
    # Half precision has too few digits for a softmax, and float16 too little range for a score: both are done in float32.
    wide = torch.promote_types(query.dtype, torch.float32)
    with without_autocast(query.device):
        # Scaling the query and not the scores costs L · d_k products instead of L · S, and keeps the scores in range.
        scores = (query.to(wide) * scale) @ key.to(wide).transpose(-2, -1)  # (B, H, L, S)
        if mask is None:
            weights = scores.softmax(dim=-1)
        else:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
            # The softmax of a row of −inf is 0/0. Such a row gets harmless scores first and weight 0 afterwards, so that
            # neither the output nor any gradient ever meets a NaN.
            empty = masks.empty_rows(mask)
            weights = scores.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
        output = F.dropout(weights, dropout_p) @ value.to(wide)  # (B, H, L, d_v)
    return output.to(query.dtype), weights.to(query.dtype)


def _fused(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa) -> Tensor:
    """Torch's fused kernels: the same numbers without ever forming the (L, S) weights."""
    kernels = rounding = nullcontext()
    if mask is not None:
        if query.is_cuda:
            kernels = sdpa_kernel(_SOUND_WITH_A_MASK)
        if mask.dtype != torch.bool:
            # Autocast has done its work at the door; a second time it would round a float32 mask to half precision.
            rounding = without_autocast(query.device)
            # Unlike the CPU's, the kernels of CUDA read a mask in the dtype of the query alone.
            mask = mask.to(query.dtype) if query.is_cuda else mask
    with kernels, rounding:
        return _torch_attention(query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


class SelfAttention(nn.Module):
    """One head of self-attention: query, key and value are three linear maps of the same x. No output projection.

    Args:
        d_model: width of x.
        d_k: width of queries and keys.
        d_v: width of values, and so of the output. Layers stack without more ado only where d_v = d_model.
        bias: whether the three maps have a bias. The subject's usual choice is none, so False; torch's is True.

    Raises:
        ValueError: a width below 1.

    Source: Vaswani et al. 2017, section 3.2.1.
    """

    def __init__(self, d_model: int, d_k: int, d_v: int, *, bias: bool = False):
        super().__init__()
        for name, width in {"d_model": d_model, "d_k": d_k, "d_v": d_v}.items():
            if width < 1:
                raise ValueError(f"{name} is a width, at least 1, got {width}.")
        self.q_proj = nn.Linear(d_model, d_k, bias=bias)
        self.k_proj = nn.Linear(d_model, d_k, bias=bias)
        self.v_proj = nn.Linear(d_model, d_v, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Let every position attend to every position that the mask allows.

        Args:
            x: (B, L, d_model).
            mask: boolean, True = may attend, or float, added to the scores. (L, L) or (B or 1, 1, L or 1, L).

        Returns:
            output (B, L, d_v) and weights (B, L, L); weights[b, i, j] is how much position i takes from position j.

        Raises:
            ValueError: an x of another shape, naming it; a mask that does not fit.
        """
        d_model = self.q_proj.in_features
        if x.dim() != 3 or x.size(-1) != d_model:
            hint = " For a single sequence use x[None]." if x.dim() == 2 and x.size(-1) == d_model else ""
            raise ValueError(f"x must be (B, L, d_model = {d_model}), got {tuple(x.shape)}.{hint}")
        query, key, value = (project(x)[:, None] for project in (self.q_proj, self.k_proj, self.v_proj))  # (B, 1, L, d)
        output, weights = scaled_dot_product_attention(query, key, value, mask, need_weights=True)
        return output[:, 0], weights[:, 0]
