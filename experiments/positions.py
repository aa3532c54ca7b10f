"""Claims P5, P6 and P7: five kinds of position on four tasks, trained at 32 tokens, tested at 32 to 128.

The learning rate is the best of three on dev data at the trained length, for each task and kind; its runs with seed 0 count as
tests too. Sinusoidal and learned positions have five seeds, the others three. Two more tasks ask a model without positions for
its tokens' own places. Results: positions.csv beside this file. About 40 minutes on one core.

    python experiments/positions.py                      # all that the file does not hold yet
    python experiments/positions.py --only "three back"  # one task; its run of 250 steps is the one that a chapter repeats
"""

import argparse
from pathlib import Path

import torch

from lib.study import positions, records

RESULTS = Path(__file__).with_suffix(".csv")
RATES = (1e-3, 3e-3, 1e-2)
SEEDS = {"sinusoidal": 5, "learned": 5, "rotary": 3, "alibi": 3, "none": 3}
QUICK = ("three back", "learned", 3e-3, 250)  # task, kind, learning rate, steps of the row that a chapter repeats


def run(task: str, kind: str, lr: float, seed: int, steps: int | None = None) -> None:
    """Train and test once, unless the file holds it already."""
    steps = steps or positions.TASKS[task].steps
    if records.select(records.read(RESULTS), task=task, kind=kind, lr=lr, seed=seed, steps=steps).empty:
        rows = positions.run(task, kind, lr=lr, seed=seed, steps=steps)
        records.append(RESULTS, rows)
        print(task, kind, lr, seed, [(row["length"], row["accuracy"], row["bits"]) for row in rows], flush=True)


def choose_rate(task: str, kind: str) -> float:
    """The learning rate whose model gives the dev part's right answers most probability."""
    for lr in RATES:
        run(task, kind, lr, seed=0)
    dev = records.select(records.read(RESULTS), task=task, kind=kind, part="dev", seed=0, steps=positions.TASKS[task].steps)
    return float(dev.set_index("lr")["bits"].idxmin())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=positions.TASKS, help="one task instead of all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for task in [arguments.only] if arguments.only else positions.TASKS:
        for kind in ["none"] if task.startswith("place") else positions.KINDS:
            lr = choose_rate(task, kind)
            for seed in range(SEEDS[kind]):
                run(task, kind, lr, seed)
        if task == QUICK[0]:
            run(*QUICK[:3], seed=0, steps=QUICK[3])


if __name__ == "__main__":
    main()
