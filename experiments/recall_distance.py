"""Claims F3, F4 and F7: what each form of attention can still look up, over distance, length, and number of things to keep.

The task is `lib/study/recall_distance.py`: pairs of a key and a value stand among filler, and the last 8 tokens each ask for
the value of a key. All forms stand in the same model, causal, 2 layers of width 64 with 2 heads, and train alike on lengths
from 64 to 256 with few pairs and many. A query has about 32 links at length 256 in each of the sparse forms. The learning rate
is the best of two on dev questions, for each form; a run is tested on both parts, and the rows of "test" at the chosen rate
count. Two forms are trained four times as long as well, window + stride and windowed, at the rate chosen for 400 steps. About
half an hour on one core; rows that the file holds are not made again.

    python experiments/recall_distance.py                  # all that recall_distance.csv does not hold yet
    python experiments/recall_distance.py --only windowed  # one form
    python experiments/recall_distance.py --summary        # only prints the table

Columns of recall_distance.csv, a row for each training run, part and cell of the test:
    form                        key of FORMS: full, windowed, strided, window + stride, segmented, linear (elu), linear (random)
    steps, lr, seed             of the run
    parameters                  of the model
    train_loss                  mean of the last 50 steps; empty where a loss was no number, which ended the training
    part                        "dev" or "test"
    length, pairs               of the sequences tested
    nearest, farthest           distance between question and pair in tokens, both included: 1–16, 17–32, 33–64, 65–128, 129–256
    questions, accuracy         number of questions in this cell, and the share answered right; a guess is right once in 16
    date, machine, python, torch
"""

import argparse
from pathlib import Path

import pandas as pd
import torch

from lib.study import recall_distance, records

RESULTS = Path(__file__).with_suffix(".csv")
SEEDS, RATES, STEPS = (0, 1, 2), (3e-3, 1e-2), 400
LONGER, LONGER_FORMS = 1600, ("window + stride", "windowed")


def run(form: str, lr: float, seed: int, steps: int = STEPS) -> None:
    """Train and test once, unless the file holds it already."""
    known = {"form": form, "lr": lr, "seed": seed, "steps": steps}
    if not records.holds(RESULTS, **known):
        rows = recall_distance.run(**known)
        records.append(RESULTS, rows)
        print({**known, "loss": rows[0]["train_loss"]}, flush=True)


def chosen(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of the test, each form at the rate that answers most dev questions with the first seed after 400 steps."""
    parts = []
    for form, dev in records.select(results, part="dev", seed=SEEDS[0], steps=STEPS).groupby("form", sort=False):
        right = (dev["accuracy"] * dev["questions"]).groupby(dev["lr"]).sum()
        parts.append(records.select(results, part="test", form=form, lr=right.idxmax()))
    return pd.concat(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=recall_distance.FORMS, help="one form instead of all")
    parser.add_argument("--summary", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for form in () if arguments.summary else recall_distance.FORMS:
        if arguments.only in (None, form):
            for lr in RATES:
                run(form, lr, SEEDS[0])
            lr = float(chosen(records.select(records.read(RESULTS), form=form))["lr"].iloc[0])
            for seed in SEEDS[1:]:
                run(form, lr, seed)
            for seed in SEEDS if form in LONGER_FORMS else ():
                run(form, lr, seed, LONGER)
    table = chosen(records.read(RESULTS))
    print(table.pivot_table("accuracy", ["form", "steps", "length", "pairs"], "farthest", sort=False).round(2).to_string())


if __name__ == "__main__":
    main()
