"""Claim F6: quality and size of the cache over the number of heads of key and value, with 8 heads of the query.

Two tasks, both in width 64: the next character of BBC News (two causal layers), and four look-ups at once (one layer, as in the
chapter on heads; all four go by the same names, so one kind of key can serve them all). The learning rate is the best of two on
dev data, for each setting; a run is tested on both parts, and the rows of "test" at the chosen rate count. About five minutes
on one core; rows that the file holds are not made again.

    python experiments/kv_heads.py                # all that kv_heads.csv does not hold yet
    python experiments/kv_heads.py --only text    # one task
    python experiments/kv_heads.py --summary      # only prints the table

Columns of kv_heads.csv, a row for each training run and part:
    task                        "text" or "look-ups"
    num_heads, num_kv_heads     8; 8, 4, 2 or 1
    steps, lr, seed             of the run
    parameters                  of the attention layers; fewer heads of key and value have fewer
    cache_bytes                 keys and values of one token in all layers, float32, as a cache holds them
    part                        "dev" or "test"
    accuracy, loss              share of right answers, mean cross entropy in nats
    date, machine, python, torch
"""

import argparse
from pathlib import Path

import pandas as pd
import torch

from lib.study import kv_heads, records

RESULTS = Path(__file__).with_suffix(".csv")
SEEDS, RATES = (0, 1, 2), (3e-3, 1e-2)
SHARED = (8, 4, 2, 1)  # heads of key and value
STEPS = {"look-ups": 1000, "text": 500}


def run(task: str, num_kv_heads: int, lr: float, seed: int) -> None:
    """Train and test once, unless the file holds it already."""
    known = {"task": task, "num_kv_heads": num_kv_heads, "lr": lr, "seed": seed, "steps": STEPS[task]}
    if not records.holds(RESULTS, **known):
        rows = kv_heads.run(**known)
        records.append(RESULTS, rows)
        print({**known, **{row["part"]: (row["accuracy"], row["loss"]) for row in rows}}, flush=True)


def chosen(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of the test, each setting at the rate whose loss on dev data is least with the first seed."""
    parts = []
    for (task, shared), dev in records.select(results, part="dev", seed=SEEDS[0]).groupby(["task", "num_kv_heads"]):
        lr = dev.loc[dev["loss"].idxmin(), "lr"]
        parts.append(records.select(results, part="test", task=task, num_kv_heads=shared, lr=lr))
    return pd.concat(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=STEPS, help="one task instead of all")
    parser.add_argument("--summary", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for task in () if arguments.summary else STEPS:
        for shared in SHARED if arguments.only in (None, task) else ():
            for lr in RATES:
                run(task, shared, lr, SEEDS[0])
            lr = float(chosen(records.select(records.read(RESULTS), task=task, num_kv_heads=shared))["lr"].iloc[0])
            for seed in SEEDS[1:]:
                run(task, shared, lr, seed)
    table = chosen(records.read(RESULTS)).groupby(["task", "num_kv_heads", "lr", "cache_bytes"])[["accuracy", "loss"]]
    print(table.agg(["min", "mean", "max"]).round(4).to_string())


if __name__ == "__main__":
    main()
