"""The exercises of the chapter on positions. Each check takes the reader's answer and prints a verdict with advice.

    from lib.study.exercises import positional_encoding as check
    check.move_on(move_on)

One module here for each exercise: its inputs, its texts, and the wrong versions it knows, right beside their advice.
"""

from typing import Any

from lib.study.exercises import check
from lib.study.exercises.positional_encoding.moved import MOVED
from lib.study.exercises.positional_encoding.padded import POSITIONS
from lib.study.exercises.positional_encoding.slopes import SLOPES
from lib.study.exercises.positional_encoding.turned import TURNED


def move_on(answer: Any) -> None:
    """Check `move_on(row, k)`: a row of the sinusoidal table (d,), d even, of any position p; returns that of p + k, (d,)."""
    check(MOVED, answer)


def turn(answer: Any) -> None:
    """Check `turn_pairs(x, angles)`: the pairs (x0, x_{d/2}), … of every row, each turned by its angle against the clock.

    x is (n, d), d even, angles (n, d / 2) in radians. The answer returns (n, d).
    """
    check(TURNED, answer)


def positions(answer: Any) -> None:
    """Check `positions(real)`: the number of each token in its own sequence, in a batch that is padded on the left.

    real is (B, S) boolean, True = a real token. The answer returns (B, S) integers, 0 at the padding.
    """
    check(POSITIONS, answer)


def slopes(answer: Any) -> None:
    """Check `slopes(H)`: ALiBi's slopes of H heads, (H,), H any number from 1 on."""
    check(SLOPES, answer)
