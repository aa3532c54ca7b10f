"""Exercise 1: a row of the sinusoidal table, moved on by k positions."""

import torch
from torch import Tensor

from lib.positional import SinusoidalEncoding
from lib.study.exercises import Case, Exercise, Mistake


def _row(position: int, d: int) -> Tensor:
    return SinusoidalEncoding(d).table(position + 1)[position]


def _cases() -> list[Case]:
    return [{"row": _row(p, d), "k": k} for p, d, k in ((5, 8, 3), (40, 6, -7), (2, 2, 1), (0, 4, 9))]


def _angles(d: int, k: float, power=lambda i, d: -2 * i / d) -> Tensor:
    """(d / 2,): by how much each hand moves."""
    return k * torch.tensor(10000.0) ** power(torch.arange(d // 2), d)


def _turned(row: Tensor, angles: Tensor) -> Tensor:
    """Sine first: sin(a + b) = sin a cos b + cos a sin b, cos(a + b) = cos a cos b − sin a sin b."""
    sine, cosine = row[0::2], row[1::2]
    moved = sine * angles.cos() + cosine * angles.sin(), cosine * angles.cos() - sine * angles.sin()
    return torch.stack(moved, dim=-1).flatten()


def _of_k(row: Tensor, k: int) -> Tensor:
    """The encoding of k itself, below 0 too."""
    angles = _angles(len(row), k)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten()


def _halves(row: Tensor, k: int) -> Tensor:
    angles = _angles(len(row), k)
    sine, cosine = row.chunk(2)
    return torch.cat((sine * angles.cos() + cosine * angles.sin(), cosine * angles.cos() - sine * angles.sin()))


def _overwritten(row: Tensor, k: int) -> Tensor:
    angles = _angles(len(row), k)
    sine = row[0::2] * angles.cos() + row[1::2] * angles.sin()
    return torch.stack((sine, row[1::2] * angles.cos() - sine * angles.sin()), dim=-1).flatten()


MOVED = Exercise(
    hint="Hand i moves on by the angle k · 10000^(−2i / d), wherever it stands. P3 has the 2×2 matrix for one hand.",
    why="You never asked which position the row belongs to. So one map does it everywhere.",
    shapes="row is (d,). row[0::2] are the sines, row[1::2] the cosines, and the angles are all (d / 2,). Return (d,).",
    next_step="Try the row of position 0, which is 0, 1, 0, 1, …: moved on by k it has to be the row of position k.",
    right=lambda row, k: _turned(row, _angles(len(row), k)),
    cases=_cases,
    mistakes=(
        Mistake(
            lambda row, k: _turned(row, _angles(len(row), -k)),
            "Your row went back by k. The sine comes first here, so the matrix has its minus below: see P3.",
        ),
        Mistake(
            lambda row, k: row + _of_k(row, k),
            "You add the row of k. Angles add up, not their sines.",
        ),
        Mistake(
            lambda row, k: _of_k(row, k),
            "That is the row of position k, wherever the row began. Move the row that is given.",
        ),
        Mistake(
            lambda row, k: _turned(row, _angles(len(row), k, lambda i, d: 0 * i)),
            "All hands move by k. Each has a speed of its own: 10000^(−2i / d).",
        ),
        Mistake(
            lambda row, k: _turned(row, _angles(len(row), k, lambda i, d: -i / d)),
            "The power is −2i / d. With −i / d the later hands are too fast.",
        ),
        Mistake(
            lambda row, k: _turned(row, _angles(len(row), k, lambda i, d: 2 * i / d)),
            "The power lost its minus: later hands turn more slowly.",
        ),
        Mistake(
            lambda row, k: _turned(row, _angles(len(row), 1)),
            "That is one position on, whatever k is.",
        ),
        Mistake(
            _overwritten,
            "The cosine is made from the new sine. Keep both old numbers until both new ones are made.",
        ),
        Mistake(
            _halves,
            "You pair the halves of the row. In this table neighbors belong together: a sine, then its cosine.",
        ),
    ),
)
