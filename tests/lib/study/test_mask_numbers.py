"""What a number does in place of minus infinity, and rows masked whole: the tables are made of measurements that can differ."""

import math

import pytest
import torch
from torch import nn

from lib.study import mask_numbers as numbers

SCORES = torch.tensor(numbers.SCORES, dtype=torch.float64)


@pytest.mark.parametrize("constant", numbers.CONSTANTS)
@pytest.mark.parametrize("how", ["fill", "add"])
def test_a_row_with_allowed_keys_is_the_softmax_over_these(constant, how):
    weights = numbers.row_weights(constant, torch.float64, how)
    expected = torch.cat([SCORES[:2].softmax(0), torch.zeros(2, dtype=torch.float64)])
    torch.testing.assert_close(weights, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("constant", "dtype", "how", "word"),
    [
        ("−inf", torch.float32, "fill", "NaN"),
        ("boolean", torch.float16, "fill", "0"),
        ("−1e9", torch.float32, "fill", "mean"),
        ("−1e9", torch.float32, "add", "mean"),
        ("−1e9", torch.float64, "add", "as unmasked"),
        ("−1e4", torch.float32, "add", "as unmasked"),
        ("−1e9", torch.float16, "fill", "cannot write"),
    ],
)
def test_a_row_masked_whole_depends_on_number_format_and_way(constant, dtype, how, word):
    plain = SCORES.to(dtype).softmax(0)
    assert numbers.verdict_of_row(numbers.row_weights(constant, dtype, how, whole=True), plain) == word


def test_the_smallest_number_overflows_under_a_low_score_in_float16_alone():
    words = {}
    for name, dtype in numbers.DTYPES.items():
        row = numbers.row_weights("finfo.min", dtype, "add", whole=True, shift=numbers.LOW)
        words[name] = numbers.verdict_of_row(row, SCORES.to(dtype).softmax(0))
    assert words == {"float64": "mean", "float32": "mean", "bfloat16": "mean", "float16": "NaN"}


@pytest.mark.parametrize(
    ("weights", "word"),
    [
        (None, "cannot write"),
        ([math.nan, 0, 0, 1], "NaN"),
        ([0, 0, 0, 0], "0"),
        ([0.25] * 4, "mean"),
        ([0.5, 0.5, 0, 0], "other"),
        (SCORES.softmax(0).tolist(), "as unmasked"),
    ],
)
def test_a_row_is_called_by_what_it_is(weights, word):
    weights = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    assert numbers.verdict_of_row(weights, SCORES.softmax(0)) == word


def test_the_table_has_a_row_for_each_format_and_number():
    table = numbers.constants_table()
    assert [(row["format"], row["constant"]) for row in table] == [(d, c) for d in numbers.DTYPES for c in numbers.CONSTANTS]
    assert [row["constant"] for row in table if row["written"] == "no"] == ["−1e9"]
    assert {row["whole row, torch"] for row in table if row["constant"] in ("−inf", "boolean")} == {"0"}


@pytest.mark.parametrize("dtype", numbers.DTYPES.values())
def test_the_textbook_gives_nan_and_the_library_0(dtype):
    assert numbers.row_in_function("textbook softmax", dtype) == ("NaN", "NaN")
    for name in numbers.FUNCTIONS:
        if name.startswith("ours"):
            assert numbers.row_in_function(name, dtype) == ("0", "finite")


def test_our_module_gives_0_however_it_is_called():
    assert {row["ours"] for row in numbers.modules_table()} == {"0"}


def test_torchs_module_gives_nan_when_its_weights_are_asked_for():
    # https://github.com/pytorch/pytorch/issues/41508
    table = numbers.modules_table()
    assert {row["nn.MultiheadAttention"] for row in table if row["weights"] == "asked"} == {"NaN"}


def test_the_module_is_seen_by_its_second_sequence(monkeypatch):
    monkeypatch.setattr(nn.MultiheadAttention, "forward", lambda self, x, *_, **__: (x, None))
    assert numbers.sample_in_module(False, training=True, need_weights=True, gradients=True) == "other"


@pytest.mark.parametrize(
    ("added", "wiped", "before", "expected"),
    [
        (False, "nothing", False, ("NaN", "NaN for v")),
        (False, "the weights", False, ("0", "finite")),
        (True, "the weights", False, ("0", "NaN for q, k")),
        (False, "the output", False, ("0", "NaN for v")),
        (True, "the output", False, ("0", "NaN for q, k, v")),
        (False, "the weights", True, ("0", "finite")),
        (True, "the weights", True, ("0", "finite")),
    ],
)
def test_wiping_nan_out_afterwards_saves_the_output_and_not_every_gradient(added, wiped, before, expected):
    assert numbers.gradients_after_wiping(added, wiped, before=before) == expected
