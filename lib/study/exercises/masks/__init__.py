"""The exercises of the chapter on masks. Each check takes the reader's function and prints a verdict with advice.

    from lib.study.exercises import masks as check
    check.causal_mask(causal_mask)

One module here for each exercise: its inputs, its texts, and the wrong versions it knows, right beside their advice.
"""

from typing import Any

from lib.study.exercises import check
from lib.study.exercises.masks.cached import CAUSAL_MASK
from lib.study.exercises.masks.heads import HEADS_MASK
from lib.study.exercises.masks.leak import LEAKS
from lib.study.exercises.masks.padding import PADDING_MASK
from lib.study.exercises.masks.row import MASKED_WEIGHTS
from lib.study.exercises.masks.truth import as_numbers
from lib.study.exercises.masks.window import WINDOW_MASK


def causal_mask(answer: Any) -> None:
    """Check `causal_mask(L, S)`: (L, S) boolean, True = may attend, the last query at the last key."""
    check(CAUSAL_MASK, as_numbers(answer))


def padding_mask(answer: Any) -> None:
    """Check `padding_mask(lengths, S)`: (B, 1, 1, S) boolean, True = a real token; lengths is (B,)."""
    check(PADDING_MASK, as_numbers(answer))


def window_mask(answer: Any) -> None:
    """Check `window_mask(n, window)`: (n, n) boolean; each query sees itself and the window − 1 keys before it."""
    check(WINDOW_MASK, as_numbers(answer))


def masked_weights(answer: Any) -> None:
    """Check `masked_weights(scores, mask, bias)`: softmax(scores + bias) where the mask is True, 0 elsewhere.

    Scores are (B, H, L, S), the mask boolean (B, 1, L, S), the bias float (H, L, S). A row without a True gets weights 0.
    """
    check(MASKED_WEIGHTS, answer)


def heads_mask(answer: Any) -> None:
    """Check `heads_mask(ignore, num_heads, L)`: (B, S) with True = ignore -> (B·H, L, S) with True = may attend."""
    check(HEADS_MASK, as_numbers(answer))


def leaks(answer: Any) -> None:
    """Check `leaks(attention, x)`: True if a later token moves an earlier output in any mode, else False."""
    check(LEAKS, as_numbers(answer))
