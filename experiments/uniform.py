"""Claim T1: how evenly attention spreads its weights while it learns a look-up, over starts and learning rates.

Six starts of the matrices of query, key and value, four learning rates, three seeds, 400 steps each; a row for every ten steps.
Results: uniform.csv beside this file. About 4 minutes on one core.

    python experiments/uniform.py    # all that the file does not hold yet
"""

from pathlib import Path

import torch

from lib.study import records, uniform

RESULTS = Path(__file__).with_suffix(".csv")
RATES = (1e-4, 1e-3, 1e-2, 1e-1)
SEEDS = range(3)


def main() -> None:
    torch.set_num_threads(1)
    for start in uniform.STARTS:
        for lr in RATES:
            for seed in SEEDS:
                run = {"start": start, "lr": lr, "seed": seed}
                if records.holds(RESULTS, **run):
                    continue
                _, rows = uniform.train(start, lr, seed)
                records.append(RESULTS, [run | row for row in rows])
                print(start, lr, seed, rows[1]["entropy"], rows[-1], flush=True)


if __name__ == "__main__":
    main()
