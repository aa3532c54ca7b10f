"""Claims P5, P6 and P7: five kinds of position on four tasks, trained at 32 tokens, tested at 32 to 128.

Each task and kind is trained with three learning rates and seed 0. Two of them go on to more seeds: the one that is best on dev
sequences of 32 tokens ("near"), and, of those that are about as good there, the one that is best on dev sequences of 128
("far"); often both are one. Near, sinusoidal and learned positions have five seeds; everything else has three. Two more tasks
ask a model without positions for its tokens' own places. And three kinds get five times the steps of "three back", three seeds
each: the two that had not learned it, and rotary. Results: positions.csv beside this file. About 35 minutes on one core.

    python experiments/positions.py                      # all that the file does not hold yet
    python experiments/positions.py --only "three back"  # one task; its run of 250 steps is the one that a chapter repeats
"""

import argparse
from pathlib import Path

import torch

from lib.study import positions, records
from lib.study.positions_rates import best_rates

RESULTS = Path(__file__).with_suffix(".csv")
RATES = (1e-3, 3e-3, 1e-2)
SEEDS = {"sinusoidal": 5, "learned": 5, "rotary": 3, "alibi": 3, "none": 3}
QUICK = ("three back", "learned", 3e-3, 250)  # task, kind, learning rate, steps of the row that a chapter repeats
PATIENT = (("rotary", 1e-3), ("alibi", 1e-2), ("none", 3e-3))  # kinds that get five times the steps of "three back"


def run(task: str, kind: str, lr: float, seed: int, steps: int | None = None) -> None:
    """Train and test once, unless the file holds it already."""
    steps = steps or positions.TASKS[task].steps
    if not records.holds(RESULTS, task=task, kind=kind, lr=lr, seed=seed, steps=steps):
        rows = positions.run(task, kind, lr=lr, seed=seed, steps=steps)
        records.append(RESULTS, rows)
        print(task, kind, lr, seed, [(row["length"], row["accuracy"], row["bits"]) for row in rows], flush=True)


def choose_rates(task: str, kind: str) -> tuple[float, float]:
    """The learning rates that are best on the dev part, at 32 and at 128 tokens."""
    for lr in RATES:
        run(task, kind, lr, seed=0)
    rows = records.select(records.read(RESULTS), task=task, kind=kind, steps=positions.TASKS[task].steps)
    near, far = (best_rates(rows, length).set_index(["task", "model"])["lr"] for length in (32, 128))
    return float(near[task, kind]), float(far[task, kind])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=positions.TASKS, help="one task instead of all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for task in [arguments.only] if arguments.only else positions.TASKS:
        for kind in ["none"] if task.startswith("place") else positions.KINDS:
            near, far = choose_rates(task, kind)
            for seed in range(SEEDS[kind]):
                run(task, kind, near, seed)
            for seed in range(3):
                run(task, kind, far, seed)
        if task == QUICK[0]:
            run(*QUICK[:3], seed=0, steps=QUICK[3])
            for kind, lr in PATIENT:
                for seed in range(3):
                    run(task, kind, lr, seed, steps=2000)


if __name__ == "__main__":
    main()
