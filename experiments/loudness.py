"""Claim P9: positions too faint and too loud beside the embeddings, sinusoidal and learned, three seeds.

Each arm has the learning rate, out of two or three, that is best on dev data with seed 0: the one that is soonest 90 % right,
and, where none is or several are as soon, the one with the fewest bits. Results: loudness.csv beside this file. About 10
minutes on one core.

    python experiments/loudness.py
"""

from pathlib import Path

import torch

from lib.study import positions_loudness, records

RESULTS = Path(__file__).with_suffix(".csv")
RATES = {"three back": (1e-3, 3e-3, 1e-2), "text": (3e-3, 1e-2)}
SEEDS = (0, 1, 2)
STEPS = {"three back": 300, "text": 400}


def run(task: str, kind: str, ratio: float, lr: float, seed: int) -> None:
    """Train and test once, unless the file holds it already."""
    if not records.holds(RESULTS, task=task, kind=kind, ratio=ratio, lr=lr, seed=seed):
        row = positions_loudness.run(task, kind, ratio, lr=lr, seed=seed, steps=STEPS[task])
        records.append(RESULTS, [row])
        print(row, flush=True)


def main() -> None:
    torch.set_num_threads(1)
    for task in STEPS:
        for kind in ("sinusoidal", "learned"):
            for ratio in positions_loudness.RATIOS:
                for lr in RATES[task]:
                    run(task, kind, ratio, lr, seed=0)
                tried = records.select(records.read(RESULTS), task=task, kind=kind, ratio=ratio, seed=0)
                lr = float(positions_loudness.best_rate(tried))
                for seed in SEEDS:
                    run(task, kind, ratio, lr, seed)


if __name__ == "__main__":
    main()
