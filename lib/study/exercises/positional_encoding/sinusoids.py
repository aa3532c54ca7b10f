"""Exercise 1: the table of sinusoids."""

import math

import torch
from torch import Tensor

from lib.positional import SinusoidalEncoding
from lib.study.exercises import Case, Exercise, Mistake


def _cases() -> list[Case]:
    # An even width, an odd one, the narrowest one, and a table with more positions than numbers.
    return [{"n": n, "d_model": d} for n, d in ((5, 8), (4, 7), (6, 1), (40, 6))]


def _angles(n: int, d_model: int, power=lambda i, d: -2 * i / d, start: int = 0) -> Tensor:
    """(n, ⌈d_model / 2⌉): position times 10000 to a power that depends on the number i of the pair."""
    pairs = torch.arange(math.ceil(d_model / 2))
    return torch.arange(start, start + n)[:, None] * torch.tensor(10000.0) ** power(pairs, d_model)


def _interleaved(first: Tensor, second: Tensor, d_model: int) -> Tensor:
    return torch.stack((first, second), dim=-1).flatten(-2)[:, :d_model]


def _table(angles: Tensor, d_model: int) -> Tensor:
    return _interleaved(angles.sin(), angles.cos(), d_model)


def _by_column(power):
    """Every column has a frequency of its own: sines in the even columns, cosines in the odd ones."""

    def version(n: int, d_model: int) -> Tensor:
        columns = torch.arange(d_model)
        angles = torch.arange(n)[:, None] * torch.tensor(10000.0) ** power(columns, d_model)
        return torch.where(columns % 2 == 0, angles.sin(), angles.cos())

    return version


def _even_only(n: int, d_model: int) -> Tensor:
    table = torch.zeros(n, d_model)
    table[:, 0::2] = _angles(n, d_model).sin()
    table[:, 1::2] = _angles(n, d_model).cos()  # does not fit where the width is odd
    return table


SINUSOIDS = Exercise(
    hint="Row p, pair i: the angle is p / 10000^(2i / d_model). Its sine goes to column 2i, its cosine to column 2i + 1.",
    why="Each pair is the hand of a clock. All of them together tell every position from every other one.",
    shapes="Angles are (n, number of pairs), and there are ⌈d_model / 2⌉ pairs: an odd width ends with a sine that has no "
    "cosine. The table is (n, d_model).",
    next_step="Check in this order: row 0 is 0, 1, 0, 1, …; row 1 begins with sin 1 = 0.84 and cos 1 = 0.54; then the powers.",
    right=lambda n, d_model: SinusoidalEncoding(d_model).table(n),
    cases=_cases,
    mistakes=(
        Mistake(
            _even_only,
            "An odd width has one sine more than cosines. Cut the cosines: angles.cos()[:, : d_model // 2].",
        ),
        Mistake(
            lambda n, d: _interleaved(_angles(n, d).cos(), _angles(n, d).sin(), d),
            "Sine and cosine are swapped: even columns hold sines, odd columns cosines.",
        ),
        Mistake(
            lambda n, d: torch.cat((_angles(n, d).sin(), _angles(n, d).cos()), dim=-1)[:, :d],
            "All sines stand before all cosines. Here they take turns: sine, cosine, sine, cosine, …",
        ),
        Mistake(
            _by_column(lambda j, d: -j / d),
            "Your sine and cosine of one pair have different frequencies. The power has the pair's number, the same for "
            "columns 2i and 2i + 1: j // 2 * 2 in place of j.",
        ),
        Mistake(
            _by_column(lambda j, d: -2 * j / d),
            "Your i counts columns. In the formula it counts pairs: column j belongs to pair j // 2.",
        ),
        Mistake(
            lambda n, d: _table(_angles(n, d, lambda i, d: -i / d), d),
            "The power is i / d_model. It is 2i / d_model, so that the pairs reach over the whole range.",
        ),
        Mistake(
            lambda n, d: _table(_angles(n, d, lambda i, d: 2 * i / d), d),
            "You multiply by the power of 10000. Divide by it: later pairs turn more slowly.",
        ),
        Mistake(
            lambda n, d: _table(_angles(n, d, start=1), d),
            "Your positions begin with 1. The first token stands at position 0.",
        ),
        Mistake(
            lambda n, d: _interleaved(_angles(n, d).sin(), _angles(n, d).sin(), d),
            "Both columns of a pair are sines. The second one is a cosine.",
        ),
        Mistake(
            lambda n, d: _table(_angles(n, d), d).T,
            "The table is transposed: a row for each position, (n, d_model).",
        ),
        Mistake(
            lambda n, d: _table(_angles(n, d) * math.pi / 180, d),
            "You turn the angle from degrees into radians. It is in radians already.",
        ),
        Mistake(
            lambda n, d: _table(_angles(n, d) * 2 * math.pi, d),
            "You multiply by 2π. The angle is the quotient itself: a wavelength is 2π · 10000^(2i / d_model) positions.",
        ),
    ),
)
