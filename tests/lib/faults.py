"""Wrong attentions, on purpose. A test suite that lets one of them pass would let it pass in the library too."""

import math

import torch
from torch import Tensor

# Each fault has been seen in public code or is one keystroke away. Beside it: the properties that must find it.
ROWS = "weights sum to one or to zero where no key is allowed"
LOOPS, GRADIENTS = "equals the loops", "gradients are those of the loops and finite"
HIDDEN, BOTH = "hidden keys have no influence and no gradient", "mask and causality both hold"
PADDING, BIAS = "amount of padding does not matter", "constant added to a float mask changes nothing"
FAULTS = {
    "True means ignore": [LOOPS, "full mask is no mask", "boolean mask is a float mask of zero and minus infinity"],
    "scale is 1 over d_k": [LOOPS, "default scale is one over the root of the width"],
    "no scale": [LOOPS, "default scale is one over the root of the width"],
    "softmax over the queries": [LOOPS, ROWS],
    "causal from the lower right": [LOOPS, BOTH],
    "causal hides the query itself": [LOOPS, BOTH],
    "causality forgotten": [LOOPS, HIDDEN, BOTH],
    "causality forgotten beside a mask": [LOOPS, HIDDEN, BOTH],
    "mask multiplied after the softmax": [LOOPS, ROWS, PADDING],
    "minus 1e4 for minus infinity": [ROWS, HIDDEN],
    "NaN in a row without a key": [ROWS, GRADIENTS],
    "NaN in the gradient of such a row": [GRADIENTS, HIDDEN],
    "float mask taken for boolean": [LOOPS, "boolean mask is a float mask of zero and minus infinity"],
    "float mask multiplied": [LOOPS, BIAS],
    "heads shared in turn": [LOOPS, "shared heads are repeated neighbors"],
    "exponentials without their maximum": ["huge scores stay finite"],
    "later keys count more": [LOOPS, "order of keys does not matter"],
    "first query gets the mean": [LOOPS, "order of queries is that of the outputs"],
    "distance for product": [LOOPS, "same vector added to every key changes nothing"],
    "residual added": [LOOPS, "output lies between the allowed values", "output is linear in the values"],
}


def faulty_attention(fault: str, query, key, value, mask=None, *, is_causal=False, scale=None) -> Tensor:
    """Attention in 4-D tensors with one `fault` of `FAULTS`; any other word gives a right one."""
    repeat = 1, query.size(1) // key.size(1), 1, 1
    in_turn = fault == "heads shared in turn"
    key, value = (x.repeat(repeat) if in_turn else x.repeat_interleave(repeat[1], dim=1) for x in (key, value))
    scores = _scores(fault, query, key, scale)
    scores, hidden = _hide(fault, scores, mask, is_causal)
    weights = _normalize(fault, scores, hidden)
    if fault == "first query gets the mean":
        weights = torch.cat([torch.full_like(weights[:, :, :1], 1 / weights.size(-1)), weights[:, :, 1:]], dim=2)
    output = weights @ value
    return output + 1 if fault == "residual added" else output


def _scores(fault: str, query: Tensor, key: Tensor, scale: float | None) -> Tensor:
    d_k = query.size(-1)
    default = {"scale is 1 over d_k": 1 / d_k, "no scale": 1.0}.get(fault, 1 / math.sqrt(d_k))
    scores = query @ key.mT * (default if scale is None else scale)
    if fault == "distance for product":
        scores = -(query[..., :, None, :] - key[..., None, :, :]).square().sum(-1)
    if fault == "later keys count more":
        scores = scores + 0.1 * torch.arange(key.size(2))
    return scores


def _hide(fault: str, scores: Tensor, mask: Tensor | None, is_causal: bool) -> tuple[Tensor, Tensor]:
    """The scores with a float mask applied, and which links are hidden."""
    L, S = scores.shape[-2:]
    hidden = torch.zeros_like(scores, dtype=torch.bool)
    if mask is not None and fault == "float mask taken for boolean":
        mask = mask.bool()
    if mask is not None and mask.dtype == torch.bool:
        hidden = hidden | (mask if fault == "True means ignore" else ~mask)
    elif mask is not None:
        hidden = hidden | (mask == -math.inf)
        bias = mask.masked_fill(mask == -math.inf, 0.0)
        scores = scores * bias if fault == "float mask multiplied" else scores + bias
    forgotten = fault == "causality forgotten" or (fault == "causality forgotten beside a mask" and mask is not None)
    if is_causal and not forgotten:
        shift = {"causal from the lower right": S - L, "causal hides the query itself": -1}.get(fault, 0)
        hidden = hidden | torch.ones(L, S, dtype=torch.bool).triu(1 + shift)
    return scores, hidden


def _normalize(fault: str, scores: Tensor, hidden: Tensor) -> Tensor:
    empty = hidden.all(dim=-1, keepdim=True)
    if fault == "mask multiplied after the softmax":
        return scores.softmax(dim=-1) * ~hidden
    if fault == "minus 1e4 for minus infinity":
        return scores.masked_fill(hidden, -1e4).softmax(dim=-1)
    if fault == "NaN in a row without a key":
        return scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
    if fault == "NaN in the gradient of such a row":
        bias = torch.zeros_like(scores).masked_fill(hidden, -math.inf)
        return (scores + bias).softmax(dim=-1).masked_fill(empty, 0.0)
    scores = scores.masked_fill(hidden, -math.inf).masked_fill(empty, 0.0)
    if fault == "exponentials without their maximum":
        powers = scores.exp()
        weights = powers / powers.sum(dim=-1, keepdim=True)
    else:
        weights = scores.softmax(dim=-2 if fault == "softmax over the queries" else -1)
    return weights.masked_fill(empty, 0.0)
