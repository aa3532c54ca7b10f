"""Exercise: layer norm by hand, over the width of each token."""

from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor

EPS = 0.1  # large, so that it matters where it is added


def _cases() -> list[Case]:
    cases = []
    for i, (size, spread) in enumerate((((2, 3, 4), 1.0), ((3, 3, 3), 0.3), ((1, 5, 8), 2.0))):
        weight, bias = (random_tensor(size[-1], seed=500 + 3 * i + j) for j in (0, 1))
        x = spread * random_tensor(*size, seed=502 + 3 * i) + 0.5
        cases.append({"x": x, "weight": weight, "bias": bias, "eps": EPS})
    return cases


def _norm(x: Tensor, eps: float, dims: int | tuple[int, ...] = -1, correction: int = 0) -> Tensor:
    """Mean 0 and variance 1 over some axes."""
    mean = x.mean(dim=dims, keepdim=True)
    return (x - mean) / (x.var(dim=dims, keepdim=True, correction=correction) + eps).sqrt()


def right(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """x (B, L, D), weight and bias (D,) -> (B, L, D)."""
    return _norm(x, eps) * weight + bias


LAYER_NORM = Exercise(
    hint="For each token alone, over its D numbers: subtract the mean, divide by the root of the variance plus eps. Then "
    "times weight, plus bias.",
    why="A token's norm needs no other token and no other sequence, so it is the same for any batch, any length, any mode.",
    shapes="x is (B, L, D). Mean and variance are over the last axis with keepdim=True, (B, L, 1). Weight and bias are (D,).",
    next_step="Put in weight 1, bias 0 and eps 0: each token should have mean 0 and mean square 1.",
    right=right,
    cases=_cases,
    mistakes=(
        Mistake(
            lambda x, w, b, eps: _norm(x, eps, correction=1) * w + b,
            "The variance is divided by D − 1, which is torch's default. Layer norm divides by D: correction=0.",
        ),
        Mistake(
            lambda x, w, b, eps: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, correction=0) + eps) * w + b,
            "eps is added to the deviation. It is added to the variance, under the root.",
        ),
        Mistake(
            lambda x, w, b, eps: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps) * w + b,
            "Two things: eps belongs to the variance, under the root, and the variance is divided by D (correction=0).",
        ),
        Mistake(
            lambda x, w, b, eps: _norm(x, eps, (0, 1)) * w + b,
            "Mean and variance are over batch and tokens, for each column: that is batch norm. A token is on its own here: "
            "dim=-1.",
        ),
        Mistake(
            lambda x, w, b, eps: _norm(x, eps, 1) * w + b,
            "Mean and variance are over the tokens of a sequence, dim=1. They are over the width of one token, dim=-1.",
        ),
        Mistake(
            lambda x, w, b, eps: _norm(x, eps, (1, 2)) * w + b,
            "All tokens of a sequence share one mean and one variance. Each token has its own: dim=-1.",
        ),
        Mistake(
            lambda x, w, b, eps: x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * w + b,
            "The mean is not subtracted. Without it, it is RMS norm, which many newer models use, and a different function.",
        ),
        Mistake(
            lambda x, w, b, eps: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + eps) * w + b,
            "You divide by the variance. Divide by its square root.",
        ),
        Mistake(lambda x, w, b, eps: _norm(x, eps), "Weight and bias are missing: times weight, plus bias, for each column."),
        Mistake(lambda x, w, b, eps: _norm(x, eps) * w, "The bias is missing."),
        Mistake(
            lambda x, w, b, eps: (_norm(x, eps) + b) * w, "The bias is added before the weight. First times weight, then plus."
        ),
        Mistake(lambda x, w, b, eps: right(x, w, b, 0.0), "eps has no effect: add it to the variance, under the root."),
    ),
)
