"""The checks of the chapter on positions: right answers of any style pass, wrong ones never do and get the advice that fits."""

import math

import pytest
import torch

from lib.study.exercises import positional_encoding as check
from lib.study.exercises import verdict
from lib.study.exercises.positional_encoding.moved import MOVED
from lib.study.exercises.positional_encoding.padded import POSITIONS
from lib.study.exercises.positional_encoding.slopes import SLOPES
from lib.study.exercises.positional_encoding.turned import TURNED
from tests.lib.study.exercise_answers import assert_advice, pairs

EXERCISES = {"move_on": MOVED, "turn": TURNED, "positions": POSITIONS, "slopes": SLOPES}


# ---- right answers, in several styles


def moved_by_slices(row, k):
    angles = k / 10000 ** (torch.arange(0, len(row), 2) / len(row))
    out = torch.empty_like(row)
    out[0::2] = row[0::2] * angles.cos() + row[1::2] * angles.sin()
    out[1::2] = row[1::2] * angles.cos() - row[0::2] * angles.sin()
    return out


def moved_by_angle(row, k):
    angles = torch.atan2(row[0::2], row[1::2]) + k * 10000 ** (-torch.arange(0, len(row), 2) / len(row))
    return torch.stack((angles.sin(), angles.cos()), -1).flatten()


def moved_by_matrix(row, k):
    blocks = []
    for i in range(len(row) // 2):
        angle = k / 10000 ** (2 * i / len(row))
        blocks.append(torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]))
    return torch.block_diag(*blocks) @ row


def turn_by_slices(x, angles):
    half = x.size(-1) // 2
    out = torch.empty_like(x)
    out[:, :half] = x[:, :half] * angles.cos() - x[:, half:] * angles.sin()
    out[:, half:] = x[:, :half] * angles.sin() + x[:, half:] * angles.cos()
    return out


def turn_by_rotate_half(x, angles):
    a, b = x.chunk(2, -1)
    return x * angles.cos().repeat(1, 2) + torch.cat((-b, a), -1) * angles.sin().repeat(1, 2)


def turn_by_complex_numbers(x, angles):
    turned = torch.complex(*x.chunk(2, -1)) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), -1)


def positions_by_cumsum(real):
    return (real.long().cumsum(-1) - 1).clamp(min=0)


def positions_by_shift(real):
    return (torch.arange(real.size(1)) - (~real).sum(1)[:, None]).clamp(min=0)


def positions_by_loop(real):
    rows = []
    for row in real.tolist():
        places = []
        for is_real in row:
            places.append(max(len([p for p in places if p is not None]), 0) if is_real else None)
        rows.append([0 if p is None else p for p in places])
    return torch.tensor(rows)


def series(n):
    return [2.0 ** (-8 * h / n) for h in range(1, n + 1)]


def slopes_by_recursion(H):
    below = 2 ** int(math.log2(H))
    if below == H:
        return torch.tensor(series(H))
    return torch.cat((slopes_by_recursion(below), slopes_by_recursion(2 * below)[0::2][: H - below]))


def slopes_by_loop(H):
    n = 1
    while 2 * n <= H:
        n *= 2
    slopes = series(n)
    h = 1
    while len(slopes) < H:
        slopes.append(2.0 ** (-8 * h / (2 * n)))
        h += 2
    return torch.tensor(slopes, dtype=torch.float64)


RIGHT = {
    "move_on": [moved_by_slices, moved_by_angle, moved_by_matrix],
    "turn": [turn_by_slices, turn_by_rotate_half, turn_by_complex_numbers],
    "positions": [positions_by_cumsum, positions_by_shift, positions_by_loop],
    "slopes": [slopes_by_recursion, slopes_by_loop],
}


@pytest.mark.parametrize(("name", "answer"), pairs(RIGHT))
def test_a_right_answer_of_any_style_passes(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out == f"Right. {EXERCISES[name].why}\n"


# ---- wrong answers, written as a reader would, with words that the advice must hold


def neighbors(x, angles):
    a, b = x[:, 0::2], x[:, 1::2]
    return torch.stack((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1).flatten(1)


def overwritten(x, angles):
    half = x.size(-1) // 2
    out = x.clone()
    out[:, :half] = out[:, :half] * angles.cos() - out[:, half:] * angles.sin()
    out[:, half:] = out[:, half:] * angles.cos() + out[:, :half] * angles.sin()
    return out


WRONG = {
    "move_on": [
        (lambda row, k: moved_by_angle(row, -k), "went back by k"),
        (lambda row, k: row + moved_by_angle(torch.tensor([0.0, 1.0]).repeat(len(row) // 2), k), "You add the row of k"),
        (lambda row, k: moved_by_slices(torch.tensor([0.0, 1.0]).repeat(len(row) // 2), k), "wherever the row began"),
        (lambda row, k: moved_by_matrix(row, 1), "one position on"),
        (lambda row, k: row, "the row of position 0"),
        (lambda row, k: row.view(2, -1) @ row, "row[0::2]"),
    ],
    "turn": [
        (lambda x, angles: turn_by_slices(x, -angles), "other way round"),
        (neighbors, "Here they are halves"),
        (overwritten, "new value"),
        (lambda x, angles: x * angles.cos().repeat(1, 2), "quarter turn"),
        (lambda x, angles: x @ angles, "(n, d / 2)"),
    ],
    "positions": [
        (lambda real: torch.arange(real.size(1)).repeat(real.size(0), 1), "numbers of the columns"),
        (lambda real: real.cumsum(-1), "begins with 1"),
        (lambda real: real.cumsum(-1) - 1, "gets −1"),
        (lambda real: torch.arange(real.size(1)) - (~real).sum(1)[:, None], "negative numbers"),
        (lambda real: (real.cumsum(0) - 1).clamp(min=0), "down the batch"),
        (lambda real: real.long(), "first real token"),
    ],
    "slopes": [
        (lambda H: torch.tensor(series(H)), "the formula with H itself"),
        (lambda H: slopes_by_loop(H).sort(descending=True)[0], "sorted"),
        (lambda H: -slopes_by_loop(H), "Slopes are positive"),
        (lambda H: torch.tensor(series(16)[:H]), "then 2⁻¹ and 2⁻³"),
        (lambda H: 2.0 ** -torch.arange(1, H + 1), "8 heads"),
        (lambda H: slopes_by_loop(H)[:, None], "then 2⁻¹ and 2⁻³"),
    ],
}


@pytest.mark.parametrize(("name", "answer"), pairs(WRONG))
def test_a_wrong_answer_gets_the_advice_that_fits(name, answer):
    function, words = answer
    assert_advice(verdict(EXERCISES[name], function), words)


MUTANTS = {
    "move_on": [
        lambda row, k: moved_by_slices(row, k) * 1.01,
        lambda row, k: moved_by_slices(row, k + 0.01),
        lambda row, k: moved_by_slices(row, abs(k)),
        lambda row, k: moved_by_slices(row, k)[None],
        lambda row, k: moved_by_slices(row, k).clamp(min=0),
        lambda row, k: moved_by_slices(row, k).half(),
    ],
    "turn": [
        lambda x, angles: turn_by_slices(x, angles + 0.01),
        lambda x, angles: turn_by_slices(x, angles) * 1.001,
        lambda x, angles: turn_by_slices(x, angles.flip(-1)),
        lambda x, angles: turn_by_slices(x, angles[:1]),
        lambda x, angles: turn_by_slices(x, angles)[None],
        lambda x, angles: x,
    ],
    "positions": [
        lambda real: positions_by_cumsum(real)[:1].expand(real.shape),
        lambda real: positions_by_cumsum(real).clamp(max=3),
        lambda real: positions_by_cumsum(real) + (~real).long(),
        lambda real: positions_by_cumsum(real)[..., None],
        lambda real: torch.zeros_like(real).long(),
    ],
    "slopes": [
        lambda H: slopes_by_loop(H) * 1.01,
        lambda H: slopes_by_loop(H).tolist(),
        lambda H: slopes_by_loop(min(H, 12)),
        lambda H: slopes_by_loop(H)[None],
        lambda H: slopes_by_loop(H).round(decimals=1),
    ],
}


@pytest.mark.parametrize(("name", "mutant"), pairs(MUTANTS))
def test_an_answer_that_is_off_in_one_detail_does_not_pass(name, mutant):
    assert_advice(verdict(EXERCISES[name], mutant))
