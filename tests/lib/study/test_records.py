"""Results on disk: every row stamped, appended at once, found again."""

import platform
import re

import pytest
import torch

from lib.study import records


def test_rows_come_back_with_their_stamp(tmp_path):
    path = tmp_path / "results.csv"
    assert records.read(path).empty
    records.append(path, [{"seed": 0, "accuracy": 0.5}, {"seed": 1, "accuracy": 0.75}])
    records.append(path, [{"seed": 2, "accuracy": 1.0}])
    table = records.read(path)
    assert list(table) == ["seed", "accuracy", "date", "machine", "python", "torch"]
    assert table["accuracy"].tolist() == [0.5, 0.75, 1.0]
    assert set(table["torch"]) == {torch.__version__}


def test_rows_are_selected_by_all_their_values(tmp_path):
    path = tmp_path / "results.csv"
    assert records.select(records.read(path), seed=0).empty  # no file yet
    records.append(path, [{"seed": seed, "part": part} for seed in (0, 1) for part in ("dev", "test")])
    table = records.read(path)
    assert len(records.select(table, seed=1)) == 2
    assert records.select(table, seed=1, part="dev").index.tolist() == [2]
    assert records.select(table, unknown=1).empty


def test_other_columns_are_refused_and_the_file_stays_as_it_was(tmp_path):
    path = tmp_path / "results.csv"
    records.append(path, [{"seed": 0}])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="columns"):
        records.append(path, [{"sead": 0}])
    assert path.read_bytes() == before


def test_the_stamp_names_a_processor_and_never_the_host():
    stamp = records.stamp()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", stamp["date"])
    assert stamp["machine"]
    assert platform.node() not in stamp.values()


def test_a_file_holds_a_row_only_if_all_its_values_agree(tmp_path):
    path = tmp_path / "results.csv"
    assert not records.holds(path, seed=0)  # no file yet
    records.append(path, [{"seed": 0, "part": "dev"}, {"seed": 1, "part": "test"}])
    assert records.holds(path, seed=1, part="test")
    assert not records.holds(path, seed=0, part="test")
