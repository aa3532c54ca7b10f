"""The benchmark over the length: a wrong form stops it, what it leaves out it says so, and its table is whole."""

import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch

from lib.efficient import linear_attention, windowed_attention
from lib.study import records
from tests.lib.study.scripts import load_script

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "lengths.py"
COLUMNS = [
    *("device", "form", "pass", "batch", "heads", "length", "width", "dtype", "threads"),
    *("ms", "ms_low", "ms_high", "rounds", "saved_bytes", "peak_bytes", "left_out", *records.stamp()),
]


@pytest.fixture(scope="module")
def lengths():
    sys.path.insert(0, str(BENCHMARK.parent))  # as when it is run as a script
    try:
        yield load_script("benchmarks/lengths.py")
    finally:
        sys.path.remove(str(BENCHMARK.parent))


@pytest.fixture
def options():
    return Namespace(device="cpu", dtype=torch.float32, batch=1, threads=1, budget=0.0, rounds=3, min_rounds=3)


@pytest.fixture
def small(lengths, monkeypatch):
    """The same with short lengths and narrow forms, so that windows, strides and segments still cut."""
    monkeypatch.setattr(lengths, "CHECKED", 96)
    for name, size in (("windowed", {"window": 8}), ("strided", {"stride": 4}), ("segmented", {"segment": 16})):
        monkeypatch.setitem(lengths.FORMS, name, partial(lengths.FORMS[name], **size))
    monkeypatch.setattr(lengths, "SEGMENT", 16)
    monkeypatch.setitem(lengths.REFERENCES, "windowed", lengths.masked(lengths.masks.sliding_window, 8))
    monkeypatch.setitem(lengths.REFERENCES, "strided", lengths.masked(lengths.masks.strided, 4))
    return lengths


def test_every_form_agrees_with_its_reference(small, options):
    small.check_forms(options)


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        ("windowed", partial(windowed_attention, window=9, is_causal=True)),
        ("linear", linear_attention),
        ("tiled", lambda query, key, value: value + 0 * (query + key)),
    ],
)
def test_a_wrong_form_stops_the_run(small, options, monkeypatch, form, wrong):
    monkeypatch.setitem(small.FORMS, form, wrong)
    with pytest.raises(SystemExit, match=rf"{form}: \w+ lies"):
        small.check_forms(options)


def test_rows_tell_time_and_saved_memory_and_what_is_left_out(small, options, monkeypatch):
    monkeypatch.setattr(small, "MOST_SAVED", 6 * 4 * 64 * 64 * 4)  # eager keeps several (4, 64, 64) of 4 bytes
    left_out = {}
    first = pd.DataFrame(small.measure_length(64, left_out, options))
    assert first["rounds"].eq(3).all()
    assert (first["ms_low"] <= first["ms"]).all()
    assert first[first["pass"] == "forward"]["saved_bytes"].isna().all()
    inputs_and_output = 4 * 4 * 64 * 64 * 4  # four tensors (4, 64, 64)
    assert (first[first["pass"] != "forward"]["saved_bytes"] >= inputs_and_output).all()
    second = pd.DataFrame(small.measure_length(128, left_out, options))
    eager = second["form"] == "eager"
    assert second[eager]["rounds"].eq(0).all()
    assert second[eager]["left_out"].str.contains("would keep").all()
    assert second[~eager]["left_out"].isna().all()
    assert second[~eager]["rounds"].eq(3).all()


def test_a_form_whose_call_takes_too_long_is_left_out_afterwards(small, options, monkeypatch):
    monkeypatch.setattr(small, "LONGEST_CALL", 0.0)
    left_out = {}
    small.measure_length(64, left_out, options)
    rows = small.measure_length(128, left_out, options)
    assert {row["left_out"] for row in rows} == {"a call at length 64 takes over 0 s"}
    assert small.tables(rows)


def test_rows_of_the_other_device_stay_and_those_of_this_one_are_replaced(small, options, tmp_path):
    rows, path = small.measure_length(64, {}, options), tmp_path / "lengths.csv"
    small.write([row | {"device": "cuda"} for row in rows[:2]], options, path)
    small.write(rows[:5], options, path)
    small.write(rows[:3], options, path)
    assert pd.read_csv(path)["device"].tolist() == ["cuda"] * 2 + ["cpu"] * 3


def test_the_table_has_a_row_for_each_form_pass_and_length(lengths):
    table = pd.read_csv(lengths.RESULTS)
    assert list(table.columns) == COLUMNS
    for _, device in table.groupby("device"):
        wanted = {(form, p, n) for form in lengths.FORMS for p in lengths._timing.PASSES for n in lengths.LENGTHS}
        assert set(zip(device["form"], device["pass"], device["length"], strict=True)) == wanted
        assert len(device) == len(wanted)
    ran = table["rounds"] > 0
    assert (ran == table["left_out"].isna()).all()
    assert (ran == table["ms"].notna()).all()
    assert (table["saved_bytes"].notna() == (ran & (table["pass"] != "forward"))).all()


def test_what_the_table_says_is_saved_is_saved(lengths, options):
    table = records.select(pd.read_csv(lengths.RESULTS), device="cpu", length=256).dropna(subset=["saved_bytes"])
    inputs = lengths._timing.random_inputs((1, lengths.HEADS, 256, lengths.WIDTH), options)
    for _, row in table.iterrows():
        assert lengths._timing.saved_bytes(lengths.FORMS[row["form"]], inputs) == row["saved_bytes"], row["form"]
