"""The checks of the chapter on positions: right answers of any style pass, wrong ones never do and get the advice that fits."""

import math

import pytest
import torch

from lib.study.exercises import Exercise, run, same, verdict
from lib.study.exercises import positional_encoding as check
from lib.study.exercises.positional_encoding.bias import ALIBI
from lib.study.exercises.positional_encoding.padded import POSITIONS
from lib.study.exercises.positional_encoding.sinusoids import SINUSOIDS
from lib.study.exercises.positional_encoding.turned import TURNED

EXERCISES = {"sinusoids": SINUSOIDS, "turn": TURNED, "positions": POSITIONS, "alibi": ALIBI}


def pairs(table):
    return [pytest.param(name, answer, id=f"{name}-{i}") for name, answers in table.items() for i, answer in enumerate(answers)]


# ---- right answers, in several styles


def sinusoids_by_loop(n, d_model):
    return torch.tensor(
        [
            [
                (math.cos if j % 2 else math.sin)(position / 10000 ** (j // 2 * 2 / d_model))
                for j in range(d_model)
            ]
            for position in range(n)
        ]
    )  # fmt: skip


def sinusoids_by_slices(n, d_model):
    angles = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    table = torch.empty(n, d_model)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()[:, : d_model // 2]
    return table


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


def alibi_by_broadcast(slopes, n):
    places = torch.arange(n)
    return slopes.view(-1, 1, 1) * -(places - places[:, None]).abs()


def alibi_by_loop(slopes, n):
    return torch.tensor([[[-slope * abs(i - j) for j in range(n)] for i in range(n)] for slope in slopes.tolist()])


RIGHT = {
    "sinusoids": [sinusoids_by_loop, sinusoids_by_slices],
    "turn": [turn_by_slices, turn_by_rotate_half, turn_by_complex_numbers],
    "positions": [positions_by_cumsum, positions_by_shift, positions_by_loop],
    "alibi": [alibi_by_broadcast, alibi_by_loop],
}


@pytest.mark.parametrize(("name", "answer"), pairs(RIGHT))
def test_a_right_answer_of_any_style_passes(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out == f"Right. {EXERCISES[name].why}\n"


# ---- wrong answers, written as a reader would, with words that the advice must hold


def even_widths_alone(n, d_model):
    angles = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).reshape(n, d_model)


def sines_first(n, d_model):
    angles = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.cat((angles.sin(), angles.cos()), dim=1)[:, :d_model]


def each_column_alone(n, d_model):
    angles = torch.arange(n)[:, None] / 10000 ** (torch.arange(d_model) / d_model)
    return torch.where(torch.arange(d_model) % 2 == 0, angles.sin(), angles.cos())


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
    "sinusoids": [
        (even_widths_alone, "odd width"),
        (sines_first, "All sines stand before"),
        (each_column_alone, "different frequencies"),
        (lambda n, d: sinusoids_by_loop(n + 1, d)[1:], "begin with 1"),
        (lambda n, d: sinusoids_by_slices(n, d).T, "transposed"),
        (lambda n, d: sinusoids_by_slices(n, d + 1)[:, 1:], "row 0 is 0, 1, 0, 1"),
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
    "alibi": [
        (lambda slopes, n: -alibi_by_broadcast(slopes, n), "sign is missing"),
        (lambda slopes, n: -slopes.view(-1, 1, 1) * (torch.arange(n)[:, None] - torch.arange(n)), "Later keys get a bonus"),
        (lambda slopes, n: -slopes.view(-1, 1, 1) * (torch.arange(n)[:, None] - torch.arange(n)).relu(), "cost nothing"),
        (lambda slopes, n: alibi_by_broadcast(slopes, n).sum(0), "The diagonal is 0"),
        (lambda slopes, n: slopes * -(torch.arange(n)[:, None] - torch.arange(n)).abs(), "(H, n, n)"),
    ],
}


@pytest.mark.parametrize(("name", "answer"), pairs(WRONG))
def test_a_wrong_answer_gets_the_advice_that_fits(name, answer):
    function, words = answer
    text = verdict(EXERCISES[name], function)
    assert text.startswith("Not yet. With ")
    assert words in text


@pytest.mark.parametrize(("name", "mistake"), pairs({name: list(exercise.mistakes) for name, exercise in EXERCISES.items()}))
def test_every_known_wrong_version_is_recognized_as_itself(name, mistake):
    assert verdict(EXERCISES[name], mistake.version).endswith(f" {mistake.advice}")


def margin(exercise: Exercise, one, other) -> float:
    """How clearly some case tells two functions apart: the largest difference, ∞ where shape or error differ."""
    largest = 0.0
    for case in exercise.cases():
        a, b = run(one, case), run(other, case)
        if same(a, b):
            continue
        if a.error or b.error or a.value.shape != b.value.shape:
            return math.inf
        largest = max(largest, (a.value.double() - b.value.double()).abs().max().item())
    return largest


@pytest.mark.parametrize("name", EXERCISES)
def test_the_inputs_tell_right_and_wrong_versions_apart_by_far_more_than_rounding(name):
    exercise = EXERCISES[name]
    versions = [exercise.right, *(m.version for m in exercise.mistakes)]
    for i in range(len(versions)):
        for j in range(i):
            assert margin(exercise, versions[i], versions[j]) > 1e-2, (i, j)


MUTANTS = {
    "sinusoids": [
        lambda n, d: sinusoids_by_loop(n, d) * 1.01,
        lambda n, d: sinusoids_by_loop(n, d).round(decimals=2),
        lambda n, d: sinusoids_by_loop(min(n, 39), d),
        lambda n, d: sinusoids_by_loop(n, d).half(),
        lambda n, d: sinusoids_by_loop(n, d).tolist(),
        lambda n, d: sinusoids_by_loop(n, d).clamp(min=0),
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
    "alibi": [
        lambda slopes, n: alibi_by_loop(slopes, n) * 1.01,
        lambda slopes, n: alibi_by_loop(slopes, n).tril(),
        lambda slopes, n: alibi_by_loop(slopes.flip(0), n),
        lambda slopes, n: alibi_by_loop(slopes[:1], n).expand(len(slopes), n, n),
        lambda slopes, n: alibi_by_loop(slopes, n)[None],
        lambda slopes, n: alibi_by_loop(slopes, n).masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf),
    ],
}


@pytest.mark.parametrize(("name", "mutant"), pairs(MUTANTS))
def test_an_answer_that_is_off_in_one_detail_does_not_pass(name, mutant):
    assert verdict(EXERCISES[name], mutant).startswith("Not yet. ")


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_without_an_answer_prints_the_hint_alone(name, capsys):
    def dots(*args): ...

    for answer in (None, ..., dots):
        getattr(check, name)(answer)
        assert capsys.readouterr().out == f"Not answered yet. {EXERCISES[name].hint}\n"
