"""The exercises of the chapter on efficient attention. Each check takes the reader's function and prints a verdict with advice.

    from lib.study.exercises import efficient_attention as check
    check.merge(merge)

One module here for each exercise: its inputs, its texts, and the wrong versions it knows, right beside their advice.
"""

from typing import Any

from lib.study.exercises import check
from lib.study.exercises.efficient_attention.longest import LONGEST_TEXT
from lib.study.exercises.efficient_attention.merged import MERGE
from lib.study.exercises.efficient_attention.recurrence import RECURRENCE
from lib.study.exercises.efficient_attention.stretch import STRETCH_MASK
from lib.study.exercises.masks.truth import as_numbers
from lib.study.exercises.multi_head.counts import counted


def merge(answer: Any) -> None:
    """Check `merge(m1, l1, o1, m2, l2, o2)`: what two parts of the keys left for n rows, as one (m, l, o).

    m and l are (n, 1), o is (n, d_v), as the online softmax carries them.
    """
    check(MERGE, answer)


def stretch_mask(answer: Any) -> None:
    """Check `stretch_mask(block, window)`: (block, window − 1 + block) boolean, True = may attend.

    The queries are `block` neighbors; the keys are the window − 1 tokens before the first of them, and themselves.
    """
    check(STRETCH_MASK, as_numbers(answer))


def linear_recurrence(answer: Any) -> None:
    """Check `linear_recurrence(q, k, v)`: causal linear attention, (n, d_v), from features (n, f) that are not below 0."""
    check(RECURRENCE, answer)


def longest_text(answer: Any) -> None:
    """Check `longest_text(memory, num_layers, batch, d_model, num_heads, num_kv_heads, bytes_per_number)`, a whole number.

    How many tokens of each of `batch` texts the cache holds in so many bytes.
    """
    check(LONGEST_TEXT, counted(answer))
