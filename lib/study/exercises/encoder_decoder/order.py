"""Exercise: the two sub-layers of an encoder layer, in post-norm and in pre-norm order."""

from collections.abc import Callable

import torch
from torch import Tensor

from lib.study.exercises import Case, Exercise, Mistake, random_tensor

Map = Callable[[Tensor], Tensor]


class Named:
    """A function of x (B, L, D) that a text can name."""

    def __init__(self, name: str, function: Map):
        self.name, self.function = name, function

    def __call__(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D)."""
        return self.function(x)

    def __repr__(self) -> str:
        return self.name


def _cases() -> list[Case]:
    B, L, D = 2, 3, 4
    mix, one, two = (random_tensor(*size, seed=540 + i) for i, size in enumerate(((L, L), (D, D), (D, D))))
    scale, shift = random_tensor(2, D, seed=543)
    parts = {
        "attention": Named("attention", lambda x: mix.softmax(-1) @ x @ one),
        "feed_forward": Named("feed_forward", lambda x: (x @ two).relu() - 0.5),
        "norm1": Named("norm1", lambda x: torch.nn.functional.layer_norm(x, (D,), 1.5 + scale.tanh(), shift)),
        "norm2": Named("norm2", lambda x: torch.nn.functional.layer_norm(x, (D,), 1.5 - shift.tanh(), scale)),
    }
    x = 2 * random_tensor(B, L, D, seed=544) + 1
    return [{"x": x, **parts, "norm_first": norm_first} for norm_first in (False, True)]


def _layer(post: Callable[[Tensor, Map, Map], Tensor], pre: Callable[[Tensor, Map, Map], Tensor] | None = None) -> Callable:
    """A layer whose two sub-layers follow one formula of (x, sub-layer, norm); another one for pre-norm."""

    def layer(x: Tensor, attention: Map, feed_forward: Map, norm1: Map, norm2: Map, norm_first: bool) -> Tensor:
        formula = pre if norm_first and pre is not None else post
        return formula(formula(x, attention, norm1), feed_forward, norm2)

    return layer


def _post(x: Tensor, f: Map, norm: Map) -> Tensor:
    return norm(x + f(x))


def _pre(x: Tensor, f: Map, norm: Map) -> Tensor:
    return x + f(norm(x))


right = _layer(_post, _pre)


def _parallel(x: Tensor, attention: Map, feed_forward: Map, norm1: Map, norm2: Map, norm_first: bool) -> Tensor:
    if norm_first:
        return x + attention(norm1(x)) + feed_forward(norm2(x))
    return norm2(x + feed_forward(norm1(x + attention(x))))


def _one_residual(x: Tensor, attention: Map, feed_forward: Map, norm1: Map, norm2: Map, norm_first: bool) -> Tensor:
    if norm_first:
        return x + feed_forward(norm2(attention(norm1(x))))
    return norm2(x + feed_forward(norm1(attention(x))))


SUB_LAYERS = Exercise(
    hint="Two sub-layers, one after the other. Post-norm: x = norm(x + f(x)). Pre-norm: x = x + f(norm(x)). Attention goes "
    "with norm1, the feed-forward network with norm2.",
    why="In post-norm every path to the output runs through all norms. In pre-norm the sum x + … + … passes them by.",
    shapes="Every part maps (B, L, D) to (B, L, D), and the answer has that shape too. All four parts are called: f(x).",
    next_step="Write the two cases apart, each as two lines that both begin with x =, and compare each with its formula.",
    right=right,
    cases=_cases,
    mistakes=(
        Mistake(_layer(_post), "norm_first makes no difference: both cases are post-norm."),
        Mistake(_layer(_pre), "norm_first makes no difference: both cases are pre-norm."),
        Mistake(_layer(_pre, _post), "The two cases are swapped. norm_first=True is x + f(norm(x))."),
        Mistake(
            _layer(_post, lambda x, f, norm: norm(x) + f(norm(x))),
            "Pre-norm: the residual carries norm(x). It has to carry x as it came in, else nothing passes the norms by.",
        ),
        Mistake(
            _layer(_post, lambda x, f, norm: x + norm(f(x))),
            "Pre-norm: the norm stands behind the sub-layer. It stands in front of it: x + f(norm(x)).",
        ),
        Mistake(
            _layer(lambda x, f, norm: x + norm(f(x)), _pre),
            "Post-norm: the norm covers f(x) alone. It covers the sum: norm(x + f(x)).",
        ),
        Mistake(
            _layer(lambda x, f, norm: norm(x) + f(x), _pre),
            "Post-norm: the norm covers x alone. It covers the sum: norm(x + f(x)).",
        ),
        Mistake(
            _layer(lambda x, f, norm: norm(f(x)), lambda x, f, norm: f(norm(x))),
            "The residual is missing: x is added to what the sub-layer gives.",
        ),
        Mistake(_layer(lambda x, f, norm: norm(f(x)), _pre), "Post-norm: the residual is missing, norm(x + f(x))."),
        Mistake(
            _layer(_post, lambda x, f, norm: f(norm(x))),
            "Pre-norm: the residual is missing, x + f(norm(x)).",
        ),
        Mistake(
            _layer(lambda x, f, norm: x + f(x)),
            "The norms are missing: norm(x + f(x)) in post-norm, x + f(norm(x)) in pre-norm.",
        ),
        Mistake(
            lambda x, a, f, n1, n2, first: right(x, a, f, n1, n1, first),
            "norm1 is used twice. The feed-forward network has a norm of its own, norm2.",
        ),
        Mistake(
            lambda x, a, f, n1, n2, first: right(x, a, f, n2, n1, first),
            "The norms are swapped: norm1 goes with attention, norm2 with the feed-forward network.",
        ),
        Mistake(
            lambda x, a, f, n1, n2, first: right(x, f, a, n1, n2, first),
            "The order is wrong: attention comes first, the feed-forward network second.",
        ),
        Mistake(
            _parallel,
            "Pre-norm: the feed-forward network reads the x from before the attention. It reads the sum that the attention "
            "left behind.",
        ),
        Mistake(_one_residual, "There is one residual around both sub-layers. Each sub-layer has its own."),
        Mistake(
            _layer(lambda x, f, norm: norm(x + f(norm(x)))),
            "There are two norms around each sub-layer, before and behind. Each order has one.",
        ),
        Mistake(
            lambda x, a, f, n1, n2, first: n1(x + a(x)) if not first else x + a(n1(x)),
            "The feed-forward network is missing: a second sub-layer, in the same order, with norm2.",
        ),
    ),
)
