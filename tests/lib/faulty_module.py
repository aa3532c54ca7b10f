"""One multi-head attention in plain torch, right unless told otherwise, and the faults that a diagnosis must find in it.

It holds nothing of the library, as a reader's own module does not. Each fault stands in one line of it.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

D, H = 64, 2  # width and heads of what is planted


class PlainAttention(nn.Module):
    """Self-attention that is told which tokens are real.

    Args:
        d_model: width of a token.
        num_heads: H; divides d_model.
        fault: one of `checks.FAULTS` or `checks.CAUSAL_FAULTS`; anything else gives a right one.
        causal: whether no query sees a later key.
        dropout: probability of dropping a weight.
    """

    def __init__(self, d_model: int, num_heads: int, fault: str = "", *, causal: bool = True, dropout: float = 0.0):
        super().__init__()
        self.num_heads, self.fault, self.causal, self.dropout = num_heads, fault, causal, dropout
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d_model, d_model) for _ in range(4))
        self.table = nn.Parameter(torch.zeros(64, d_model)) if fault == "table of 64 positions" else None
        if fault == "queries start at zero":
            nn.init.zeros_(self.q_proj.weight), nn.init.zeros_(self.q_proj.bias)
        if fault == "heads are copies":
            for layer in (self.q_proj, self.k_proj):
                layer.weight.data = layer.weight.data[: d_model // num_heads].repeat(num_heads, 1)
                layer.bias.data = layer.bias.data[: d_model // num_heads].repeat(num_heads)

    def forward(self, x: Tensor, keep: Tensor | None = None, cache: dict | None = None) -> Tensor:
        """x (B, L, d_model), `keep` (B, L) with True = real, a dict that holds earlier keys and values -> (B, L, d_model)."""
        fault = self.fault
        if fault == "input written over":
            x.mul_(1.5)
        if fault == "mask written over" and keep is not None:
            keep[:, 0] = True
        if fault == "batch taken for length":
            x = x.transpose(0, 1)
        if self.table is not None:
            x = x + self.table[: x.size(1)]
        q, k, v = self._split(self.q_proj(x)), self._split(self.k_proj(x)), self._split(self.v_proj(x))
        if fault == "keys used for queries":
            q = k
        if fault == "queries detached":
            q = q.detach()
        if cache is not None:
            k, v = (torch.cat([cache[name], new], dim=2) if cache else new for name, new in (("k", k), ("v", v)))
            cache |= {"k": k, "v": v}
        if fault == "batch taken for length":
            keep = None
        weights = self._weights(q, k, self._allowed(q, k, keep))
        if fault == "dropout in eval":
            weights = F.dropout(weights, self.dropout)
        elif fault == "dropout of 0.1 in the code":
            weights = F.dropout(weights, 0.1, self.training)
        else:
            weights = F.dropout(weights, self.dropout, self.training)
        y = self.out_proj(self._join(weights @ v))
        if fault == "normalized over the sequence":
            y = y / y.square().mean(dim=(1, 2), keepdim=True).sqrt()
        return y.transpose(0, 1) if fault == "batch taken for length" else y

    def _split(self, x: Tensor) -> Tensor:
        if self.fault == "heads split by a reshape":
            return x.reshape(x.size(0), self.num_heads, x.size(1), -1)
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, L, H·d) -> (B, H, L, d)

    def _join(self, x: Tensor) -> Tensor:
        if self.fault in ("heads split by a reshape", "heads joined by a reshape"):
            return x.reshape(x.size(0), x.size(2), -1)
        return x.transpose(1, 2).flatten(2)  # (B, H, L, d) -> (B, L, H·d)

    def _allowed(self, q: Tensor, k: Tensor, keep: Tensor | None) -> Tensor:
        """(B, H, L, S), True = may attend."""
        fault, (B, H, L, _), S = self.fault, q.shape, k.size(2)
        allowed = torch.ones(B, H, L, S, dtype=torch.bool, device=q.device)
        causal = self.causal and not (
            fault == "causal forgotten"
            or (fault == "causal in training only" and not self.training)
            or (fault == "causal with gradients only" and not torch.is_grad_enabled())
        )
        if causal:
            past = 0 if fault == "cached step sees key 0 alone" else S - L
            allowed = allowed.tril(past + (fault == "sees one step ahead"))
        if keep is not None and fault != "padding forgotten":
            if fault == "padding read the other way round":
                keep = ~keep
            if fault == "padding hides queries":
                allowed = allowed & keep[:, None, :, None]
            elif fault == "masks out of step with heads":
                allowed = allowed & keep.repeat(H, 1).view(B, H, 1, S)
            else:
                allowed = allowed & keep[:, None, None, :]
        return allowed

    def _weights(self, q: Tensor, k: Tensor, allowed: Tensor) -> Tensor:
        fault, scale = self.fault, 1 / math.sqrt(q.size(-1))
        scores = q @ k.mT * ({"scale forgotten": 1.0, "scale multiplied": 1 / scale}.get(fault, scale))
        if fault == "mask added as 0 and 1":
            return (scores + allowed).softmax(-1)
        if fault == "mask after the softmax":
            return scores.softmax(-1) * allowed
        if fault == "NaN in an empty row":
            return scores.masked_fill(~allowed, -math.inf).softmax(-1)
        if fault == "minus 1e9":
            return scores.masked_fill(~allowed, -1e9).softmax(-1)
        if fault == "exponentials without their maximum":
            weights = scores.exp() * allowed
            return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)
        empty = ~allowed.any(-1, keepdim=True)
        scores = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0.0)
        weights = scores.softmax(-1).masked_fill(empty, 0.0)
        if fault == "softmax over the batch":
            weights = scores.softmax(0).nan_to_num(0.0)
        return weights


def call(module: PlainAttention, x: Tensor, keep: Tensor | None) -> Tensor:
    """How a diagnosis calls it."""
    return module(x, keep)


def step(module: PlainAttention, x: Tensor, state: dict | None) -> tuple[Tensor, dict]:
    """How it goes on from the keys and values of earlier tokens."""
    state = {} if state is None else state
    return module(x, cache=state), state


def planted(fault: str = "", *, causal: bool, device: str = "cpu") -> PlainAttention:
    """One with two heads of width 32 and some dropout, always the same."""
    torch.manual_seed(1)
    return PlainAttention(D, H, fault, causal=causal, dropout=0.1).to(device)


def names(findings) -> set[str]:
    """The checks of some findings."""
    return {finding.check for finding in findings}
