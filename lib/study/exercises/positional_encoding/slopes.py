"""Exercise 4: ALiBi's slopes for any number of heads."""

import torch
from torch import Tensor

from lib.positional import alibi_slopes
from lib.study.exercises import Case, Exercise, Mistake


def _cases() -> list[Case]:
    # Powers of two, and numbers of heads that are none: one of them needs one slope more, one needs all there are.
    return [{"H": H} for H in (4, 1, 6, 3, 12, 15)]


def _series(H: int, first: int = 1) -> list[float]:
    """2^(−8h/H) for H heads, counted from `first`."""
    return [2 ** (-8 * h / H) for h in range(first, H + first)]


def _below(H: int) -> int:
    """The largest power of two that is no larger than H."""
    return 1 << (H.bit_length() - 1)


def _with(more):
    """The series of the power of two below, and what `more` takes of the series of the power above."""

    def version(H: int) -> Tensor:
        below = _below(H)
        return torch.tensor(_series(below) + more(_series(2 * below))[: H - below])

    return version


SLOPES = Exercise(
    hint="Write the series 2^(−8h/n) for n heads as a function. For H heads, let n be the power of two below (or H itself); "
    "what is missing comes from the series of 2n: its first, third, fifth, … slope.",
    why="A trained head fits its own slope. Code with other slopes for 6 or 12 heads runs, and spoils the model.",
    shapes="H is an int, and so are the sizes of both series. Make a tensor of the list at the end: (H,).",
    next_step="4 heads: 2⁻², 2⁻⁴, 2⁻⁶, 2⁻⁸. 6 heads: the same four, then 2⁻¹ and 2⁻³.",
    right=alibi_slopes,
    cases=_cases,
    mistakes=(
        Mistake(
            lambda H: torch.tensor(_series(H)),
            "That is the formula with H itself. Where H is no power of two, the authors' code does something else.",
        ),
        Mistake(
            _with(lambda above: above),
            "You take the first slopes of the power of two above, one after the other. Take every other one: [::2].",
        ),
        Mistake(
            _with(lambda above: above[1::2]),
            "The second, fourth, … slopes of the power above are those that you have already. Begin with the first: [::2].",
        ),
        Mistake(
            lambda H: alibi_slopes(H).sort(descending=True).values,
            "The slopes are right, and sorted. Keep the order: those of the power of two below come first.",
        ),
        Mistake(
            lambda H: alibi_slopes(H).flip(0),
            "The order is turned round. Head 1 comes first.",
        ),
        Mistake(
            lambda H: torch.tensor(_series(1 << (H - 1).bit_length())[:H]),
            "Those are the first H slopes of the power of two above. Begin with all of the power of two below.",
        ),
        Mistake(
            lambda H: torch.tensor((_series(_below(H), 0) + _series(2 * _below(H), 0)[::2])[:H]),
            "Your h begins with 0, so that the first slope is 1. It runs from 1 to H.",
        ),
        Mistake(
            lambda H: -alibi_slopes(H),
            "Slopes are positive. The minus belongs to the bias: −slope · distance.",
        ),
        Mistake(
            lambda H: 1 / alibi_slopes(H),
            "The power is −8h/H. Without the minus, slopes are 4 and more.",
        ),
        Mistake(
            lambda H: torch.tensor([2.0 ** -(h + 1) for h in range(H)]),
            "2⁻¹, 2⁻², … are the slopes of 8 heads. With n heads the step is 8/n.",
        ),
    ),
)
