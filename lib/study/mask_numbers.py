"""What a number in place of −∞ does, by number format; and what attention makes of a row with nothing to attend to.

Shapes: L queries, S keys, d_model the width of a token.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from lib.attention import scaled_dot_product_attention
from lib.multihead import MultiHeadAttention

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CONSTANTS = ("−1e4", "−1e9", "finfo.min", "−inf", "boolean")

SCORES = (0.5, -1.25, 2.0, 0.75)  # of one query with four keys; every format can write these numbers
HIDDEN = (False, False, True, True)
LOW = -40.0  # added to every score: the softmax does not change


def number(constant: str, dtype: torch.dtype) -> float:
    """The number that a constant stands for."""
    if constant == "finfo.min":
        return torch.finfo(dtype).min
    return {"−1e4": -1e4, "−1e9": -1e9}.get(constant, -math.inf)


def row_weights(constant: str, dtype: torch.dtype, how: str, *, whole: bool = False, shift: float = 0.0) -> Tensor | None:
    """The weights of one row of SCORES, of which the last two keys, or the whole row, are masked.

    Args:
        constant: one of CONSTANTS; "boolean" is this library's attention with a boolean mask.
        dtype: of the scores and of the softmax.
        how: "fill" puts the constant in place of the score, "add" adds it to the score.
        whole: mask all four keys.
        shift: added to every score.

    Returns:
        (4,) weights, or None where the format cannot write the constant.
    """
    scores = torch.tensor(SCORES, dtype=dtype) + shift
    hidden = torch.full((4,), True) if whole else torch.tensor(HIDDEN)
    if constant == "boolean":
        # Keys that are the scores themselves, asked by a query of 1, give these scores.
        query, key = torch.ones(1, 1, dtype=dtype), scores[:, None]
        return scaled_dot_product_attention(query, key, key, ~hidden[None], need_weights=True)[1][0]
    value = number(constant, dtype)
    try:
        if how == "fill":
            return scores.masked_fill(hidden, value).softmax(dim=-1)
        return (scores + torch.zeros(4, dtype=dtype).masked_fill(hidden, value)).softmax(dim=-1)
    except RuntimeError:  # "value cannot be converted to type c10::Half without overflow"
        return None


def verdict_of_row(weights: Tensor | None, unmasked: Tensor) -> str:
    """What became of a row that should have nothing to attend to, in one word or two."""
    if weights is None:
        return "cannot write"
    if weights.isnan().any():
        return "NaN"
    if (weights == 0).all():
        return "0"
    if (weights == weights[0]).all():
        return "mean"
    tolerance = 4 * torch.finfo(weights.dtype).eps
    return "as unmasked" if torch.allclose(weights, unmasked, atol=tolerance) else "other"


def constants_table() -> list[dict[str, str]]:
    """A row for each format and constant: can it be written, does a masked key get weight, and what becomes of a whole row."""
    rows = []
    for name, dtype in DTYPES.items():
        plain = torch.tensor(SCORES, dtype=dtype).softmax(dim=-1)
        for constant in CONSTANTS:
            ways = {how: row_weights(constant, dtype, how) for how in ("fill", "add")}
            row = {"format": name, "constant": constant, "written": "no" if ways["fill"] is None else "yes"}
            leaks = [weights is not None and bool((weights[2:] != 0).any()) for weights in ways.values()]
            row["leaks"] = "-" if ways["fill"] is None else "yes" if any(leaks) else "no"
            for how in ("fill", "add"):
                row[f"whole row, {how}"] = verdict_of_row(row_weights(constant, dtype, how, whole=True), plain)
            row["whole, added, low scores"] = verdict_of_row(row_weights(constant, dtype, "add", whole=True, shift=LOW), plain)
            row["whole row, torch"] = _torch_whole_row(constant, dtype)
            rows.append(row)
    return rows


def _torch_whole_row(constant: str, dtype: torch.dtype) -> str:
    """The same through torch's function, as a float mask, by the kernel that every machine has.

    Values are unit vectors, so that the output is the weights.
    """
    query, key, value = torch.ones(1, 1, 1, 4, dtype=dtype), torch.zeros(1, 1, 4, 4, dtype=dtype), torch.eye(4, dtype=dtype)
    key[..., 0] = 2 * torch.tensor(SCORES, dtype=dtype)  # times 1/√4
    if constant == "boolean":
        mask = torch.zeros(1, 4, dtype=torch.bool)
    else:
        try:
            mask = torch.zeros(1, 4, dtype=dtype).masked_fill(torch.ones(1, 4, dtype=torch.bool), number(constant, dtype))
        except RuntimeError:
            return "cannot write"
    with sdpa_kernel(SDPBackend.MATH):
        plain, weights = (F.scaled_dot_product_attention(query, key, value[None, None], m)[0, 0, 0] for m in (None, mask))
    return verdict_of_row(weights, plain)


# ---- a row with nothing to attend to, in everything that computes attention

WIDTH, HEADS = 8, 2


def _textbook(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    scores = query @ key.mT / math.sqrt(query.size(-1))
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1) @ value


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "textbook softmax": _textbook,
    "F.scaled_dot_product_attention": F.scaled_dot_product_attention,
    "ours, eager": lambda *inputs: scaled_dot_product_attention(*inputs, backend="eager"),
    "ours, sdpa": lambda *inputs: scaled_dot_product_attention(*inputs, backend="sdpa"),
    "ours, tiled": lambda *inputs: scaled_dot_product_attention(*inputs, backend="tiled"),
    "ours, with weights": lambda *inputs: scaled_dot_product_attention(*inputs, need_weights=True)[0],
}


def row_in_function(name: str, dtype: torch.dtype = torch.float32) -> tuple[str, str]:
    """One of FUNCTIONS with row 1 of the mask all False: what is in that row of the output, and in the gradients."""
    inputs = [_normal(1, 1, 4, WIDTH, seed=seed).to(dtype).requires_grad_() for seed in range(3)]
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    output = FUNCTIONS[name](*inputs, mask)
    output.float().square().sum().backward()
    return _say(output[0, 0, 1]), "NaN" if any(x.grad.isnan().any() for x in inputs) else "finite"


WIPED = ("nothing", "the weights", "the output")


def gradients_after_wiping(added: bool, wiped: str, *, before: bool = False) -> tuple[str, str]:
    """A row masked whole whose NaN is wiped out after the softmax: where NaN is left.

    Args:
        added: −∞ is added to the scores, else filled in.
        wiped: one of WIPED: where 0 is filled in for the row.
        before: the row's scores are set to 0 before the softmax, as this library does.

    Returns:
        What is in that row of the output, and which of the gradients of query, key, value are NaN.
    """
    query, key, value = (_normal(4, WIDTH, seed=seed).requires_grad_() for seed in range(3))
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    empty = ~mask.any(dim=-1, keepdim=True)  # (4, 1)
    scores = query @ key.mT / math.sqrt(WIDTH)
    scores = scores + torch.zeros(4, 4).masked_fill(~mask, -math.inf) if added else scores.masked_fill(~mask, -math.inf)
    weights = (scores.masked_fill(empty, 0.0) if before else scores).softmax(dim=-1)
    weights = weights.masked_fill(empty, 0.0) if wiped == "the weights" else weights
    output = weights @ value
    output = output.masked_fill(empty, 0.0) if wiped == "the output" else output
    output.square().sum().backward()
    broken = [name for name, x in zip("qkv", (query, key, value), strict=True) if x.grad.isnan().any()]
    return _say(output[1]), "NaN for " + ", ".join(broken) if broken else "finite"


def sample_in_module(ours: bool, *, training: bool, need_weights: bool, gradients: bool, dropout: float = 0.0) -> str:
    """A module of width 8 with 2 heads, whose second sequence is padding throughout: what it gives for that sequence.

    Args:
        ours: `lib.multihead.MultiHeadAttention`, else `torch.nn.MultiheadAttention`.
        training: training or eval mode.
        need_weights: ask for the weights.
        gradients: whether they are enabled; without, torch's module takes another path in eval mode.
        dropout: of the weights.
    """
    torch.manual_seed(0)
    x = _normal(2, 4, WIDTH, seed=5)
    ignore = torch.tensor([[False] * 4, [True] * 4])  # torch's word for padding
    with torch.set_grad_enabled(gradients):
        if ours:
            module = MultiHeadAttention(WIDTH, HEADS, dropout=dropout).train(training)
            output, _ = module(x, mask=~ignore[:, None, None], need_weights=need_weights)
        else:
            module = nn.MultiheadAttention(WIDTH, HEADS, dropout=dropout, batch_first=True).train(training)
            output, _ = module(x, x, x, key_padding_mask=ignore, need_weights=need_weights)
    return _say(output[1])


def modules_table() -> list[dict[str, str]]:
    """A row for each way to call the two modules."""
    rows = []
    for training, gradients, mode in ((True, True, "train"), (False, True, "eval"), (False, False, "eval, no_grad")):
        for need_weights in (True, False):
            row = {"mode": mode, "weights": "asked" if need_weights else "not asked"}
            for dropout in (0.0, 0.5) if training else (0.0,):
                options = {"training": training, "need_weights": need_weights, "gradients": gradients, "dropout": dropout}
                cells = {"nn.MultiheadAttention": sample_in_module(False, **options), "ours": sample_in_module(True, **options)}
                rows.append(row | {"dropout": str(dropout)} | cells)
    return rows


def _say(output: Tensor) -> str:
    if output.isnan().any():
        return "NaN"
    return "0" if (output == 0).all() else "other"


def _normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
