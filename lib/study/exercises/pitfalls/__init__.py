"""The exercises of the chapter on pitfalls. Each check takes the reader's function and prints a verdict with advice.

    from lib.study.exercises import pitfalls as check
    check.accumulated(accumulated)

One module here for each exercise: its inputs, its texts, and the wrong versions it knows, right beside their advice.
"""

from typing import Any

from lib.study.exercises import check
from lib.study.exercises.pitfalls.accumulation import ACCUMULATED


def accumulated(answer: Any) -> None:
    """Check `accumulated(gradients, tokens, size)`: (N, P) and (N,) -> (S, P), the gradient of each step of the optimizer."""
    check(ACCUMULATED, answer)
