"""Claim P6: a table of 32 learned positions is taken to 128, and trained on. What do its old rows save?

A model is trained at 32 tokens with the learning rate that `positions.csv` found best there. Then four ways to 128 tokens, each
trained there for up to 200 steps more: the table interpolated; the table with 96 new random rows; a model of its own from the
start; and, beside them, the same model with sinusoids. Three seeds. Results: learned_table.csv beside this file. About 12
minutes on one core.

    python experiments/learned_table.py
"""

from pathlib import Path

import torch

from lib.study import positions_longer, records
from lib.study.positions import TASKS

RESULTS = Path(__file__).with_suffix(".csv")
RATES = Path(__file__).with_name("positions.csv")
SEEDS = (0, 1, 2)


def main() -> None:
    torch.set_num_threads(1)
    for task in ("three back", "latest", "mirror"):
        dev = records.select(records.read(RATES), task=task, part="dev", seed=0, length=32, steps=TASKS[task].steps)
        best = {kind: float(rows.set_index("lr")["bits"].idxmin()) for kind, rows in dev.groupby("kind")}
        for seed in SEEDS:
            for way in positions_longer.WAYS:
                if not records.holds(RESULTS, task=task, way=way, seed=seed):
                    lr = best["sinusoidal" if way == "sinusoids" else "learned"]
                    rows = positions_longer.run(task, way, lr=lr, seed=seed)
                    records.append(RESULTS, rows)
                    print(task, way, seed, [(row["more_steps"], row["accuracy"]) for row in rows], flush=True)


if __name__ == "__main__":
    main()
