"""The exercises of the chapter on pitfalls. Each check takes the reader's function and prints a verdict with advice.

    from lib.study.exercises import pitfalls as check
    check.join(join)

One module here for each exercise: its inputs, its texts, and the wrong versions it knows, right beside their advice.
"""

from typing import Any

from lib.study.exercises import check
from lib.study.exercises.masks.truth import as_numbers
from lib.study.exercises.pitfalls.accumulation import ACCUMULATED
from lib.study.exercises.pitfalls.allow import ALLOW
from lib.study.exercises.pitfalls.attend import ATTEND, seeded
from lib.study.exercises.pitfalls.first import FIRST
from lib.study.exercises.pitfalls.join import JOIN


def join(answer: Any) -> None:
    """Check `join(heads)`: (B, H, L, d) -> (B, L, H·d), the heads of a token side by side."""
    check(JOIN, answer)


def allow(answer: Any) -> None:
    """Check `allow(L, S, keep, training)`: boolean, True = may attend; (L, S) where keep is None, else (B, 1, L, S).

    The last query stands at the last key. `keep` (B, S) is True for real tokens.
    """
    check(ALLOW, as_numbers(answer))


def attend(answer: Any) -> None:
    """Check `attend(q, k, v, p, training)`: softmax(q·kᵀ/√d)·v with dropout of the weights in training; all (B, H, L, d)."""
    check(ATTEND, seeded(answer))


def first(answer: Any) -> None:
    """Check `first(weights)`: causal weights (B, H, L, L) -> (H,), weight on token 0 over what equal weights would give it."""
    check(FIRST, answer)


def accumulated(answer: Any) -> None:
    """Check `accumulated(gradients, tokens, size)`: (N, P) and (N,) -> (S, P), the gradient of each step of the optimizer."""
    check(ACCUMULATED, answer)
