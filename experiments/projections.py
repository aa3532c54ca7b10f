"""Claims A8 and A17: what one self-attention layer loses without its projections, and what a bias in them adds.

Four layers (all three projections, the same with bias, one projection for query and key, none) on three tasks: the topic of
an article, the topic of a passage in a longer text, and a look-up by name (`lib.study.trials`). The learning rate is the best
of three on dev data, for each layer and task. Results: projections.csv beside this file. About 15 minutes on one core.

    python experiments/projections.py                   # all that the file does not hold yet
    python experiments/projections.py --only look-up    # one task; its runs of 400 steps are those that a chapter repeats
"""

import argparse
from pathlib import Path

import torch

from lib.study import records, trials

RESULTS = Path(__file__).with_suffix(".csv")
SEEDS = (0, 1, 2, 3, 4)
STEPS = {"topics": 200, "passage": 600, "look-up": 1500}
QUICK_STEPS = 400  # of the look-up
RATES = (1e-3, 3e-3, 1e-2)
LAYERS = (("all", False), ("all", True), ("shared", False), ("none", False))


def run(task: str, projections: str, bias: bool, lr: float, seed: int, part: str, steps: int | None = None) -> None:
    """Train and test once, unless the file holds it already."""
    steps = steps or STEPS[task]
    known = {"task": task, "projections": projections, "bias": bias, "steps": steps, "lr": lr, "seed": seed, "part": part}
    if not records.holds(RESULTS, **known):
        row = trials.project(task, projections, bias=bias, steps=steps, lr=lr, seed=seed, part=part)
        records.append(RESULTS, [row])
        print(known, row["accuracy"], flush=True)


def choose_rate(task: str, projections: str, bias: bool) -> float:
    """The learning rate that does best on dev data."""
    for lr in RATES:
        run(task, projections, bias, lr, seed=0, part="dev")
    dev = records.select(records.read(RESULTS), task=task, projections=projections, bias=bias, part="dev")
    return float(dev.groupby("lr")["accuracy"].mean().idxmax())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=trials.TASKS, help="one task instead of all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for task in [arguments.only] if arguments.only else trials.TASKS:
        for projections, bias in LAYERS:
            lr = choose_rate(task, projections, bias)
            for seed in SEEDS:
                run(task, projections, bias, lr, seed, part="test")
            if task == "look-up":
                run(task, projections, bias, lr, seed=0, part="test", steps=QUICK_STEPS)


if __name__ == "__main__":
    main()
