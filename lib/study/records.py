"""Results of long experiments as CSV files: what was measured, by which seed, when, on what machine, with which versions."""

import platform
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pandas as pd
import torch


def stamp() -> dict[str, str]:
    """Date, processor (never the machine's name), and versions, for a row of results."""
    return {
        "date": date.today().isoformat(),
        "machine": processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def processor() -> str:
    """The processor's name as the system gives it, else its architecture."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def read(path: Path) -> pd.DataFrame:
    """The rows written so far; none if there is no file yet."""
    return pd.read_csv(path) if path.exists() else pd.DataFrame()


def select(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    """The rows with these values in these columns; none if a column is missing."""
    for column, value in values.items():
        table = table[table[column] == value] if column in table else table.iloc[:0]
    return table


def holds(path: Path, **values: object) -> bool:
    """Whether the file has a row with these values in these columns."""
    return not select(read(path), **values).empty


def append(path: Path, rows: list[Mapping[str, object]]) -> None:
    """Write rows, each with its stamp, behind those that the file holds, all of them at once.

    Raises:
        ValueError: other columns than those of the file.
    """
    table = pd.DataFrame([{**row, **stamp()} for row in rows])
    if path.exists():
        columns = list(pd.read_csv(path, nrows=0))
        if columns != list(table):
            raise ValueError(f"{path.name} has the columns {columns}, the new rows {list(table)}: write to a new file.")
    table.to_csv(path, mode="a", header=not path.exists(), index=False)
