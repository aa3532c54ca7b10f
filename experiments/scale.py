"""Claim A12: training without the scale is slow at first, and may reach NaN. One row of scale.csv for each training run.

The task and the net are those of `lib/study/recall.py`. Every run is made with and without the scale, over the width of the
key, the learning rate, two optimizers and three precisions, three seeds each. A run ends at its goal, 90 % accuracy over 20
steps, at a loss that is no finite number, or after 300 steps; wide heads at small learning rates are also given 2000. Runs
without a goal ("none") ask where NaN begins: an arm that may stop early would be exposed to it for fewer steps.

    python experiments/scale.py             # adds the rows that are missing; about 20 minutes on one idle core in all
    python experiments/scale.py --fresh     # begins again
    python experiments/scale.py --summary   # only prints the tables

Columns: steps_to_50 and steps_to_90 are empty where the accuracy was never reached, nan_step where every loss was finite;
final_loss and final_accuracy are means of the last 20 finite steps; entropies of the weights are in nats, of at most
ln 16 = 2.77; query_gradient is the norm of the gradient of the query projection before the first step.
"""

import csv
import itertools
import math
import sys
from pathlib import Path

import pandas as pd
import torch

from lib.attention import scaled_dot_product_attention
from lib.study import records
from lib.study.recall import WINDOW, Run, textbook_attention, train

RESULTS = Path(__file__).with_suffix(".csv")
ATTENTION = {"library": scaled_dot_product_attention, "textbook": textbook_attention}
RATES = {"adam": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1), "sgd": (0.03, 0.1, 0.3, 1.0, 2.0, 3.0)}
WIDTHS, SEEDS = (16, 64, 256, 1024), range(3)
SHORT, LONG = 300, 2000  # steps
PATIENT = {"adam": (3e-4, 1e-3), "sgd": (0.03, 0.1)}  # rates at which a wide head without the scale may get there in the end
TOO_LARGE = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0)  # rates of SGD among which NaN begins
GOAL, NO_GOAL = 0.9, "none"
SETTING = ["optimizer", "precision", "attention", "d_k", "lr", "scaled", "seed", "limit", "goal"]
RESULT = [
    *("steps", "steps_to_50", "steps_to_90", "final_loss", "final_accuracy", "nan_step"),
    *("entropy_start", "entropy_end", "query_gradient"),
]


def settings():
    """Every run of the experiment, as a tuple in the order of `SETTING`."""
    forms = [("float32", "library", WIDTHS), ("bfloat16", "library", WIDTHS)]
    # Half precision word for word, at the widths at which a CPU without float16 arithmetic is quick enough.
    forms.append(("float16", "textbook", WIDTHS[:2]))
    for seed, optimizer, (precision, attention, widths) in itertools.product(SEEDS, RATES, forms):
        for d_k, lr, scaled in itertools.product(widths, RATES[optimizer], (True, False)):
            yield optimizer, precision, attention, d_k, lr, scaled, seed, SHORT, GOAL
    for seed, optimizer, d_k in itertools.product(SEEDS, RATES, WIDTHS[2:]):
        for lr, scaled in itertools.product(PATIENT[optimizer], (True, False)):
            yield optimizer, "float32", "library", d_k, lr, scaled, seed, LONG, GOAL
    for seed, d_k, lr, scaled in itertools.product(SEEDS, WIDTHS, TOO_LARGE, (True, False)):
        yield "sgd", "float32", "library", d_k, lr, scaled, seed, SHORT, NO_GOAL


def result(run: Run) -> list:
    """The columns of `RESULT`."""
    last = [sum(values[-WINDOW:]) / len(values[-WINDOW:]) for values in (run.losses, run.accuracies)]
    figures = [*last, run.nan_step, run.entropies[0], run.entropies[-1], run.query_gradient]
    return [len(run.losses), run.steps_to(0.5), run.steps_to(0.9), *(f"{x:.5g}" if type(x) is float else x for x in figures)]


def summary(runs: pd.DataFrame) -> pd.DataFrame:
    """Both arms at each width, each at its own best rate, the one with the smallest mean of steps to 90 % over the seeds.

    A run that never gets there counts as all of its steps, so the mean is then a lower bound. `rates` counts the learning
    rates at which every seed got there, `nan` the runs that ended in a NaN.
    """
    runs = runs[runs["goal"] != NO_GOAL]
    runs = runs.assign(
        mean=runs["steps_to_90"].fillna(runs["limit"]), reached=runs["steps_to_90"].notna(), nan=runs["nan_step"].notna()
    )
    setting = ["optimizer", "precision", "limit", "d_k", "scaled"]
    rates = runs.groupby([*setting, "lr"]).agg(
        mean=("mean", "mean"), least=("mean", "min"), most=("mean", "max"), reached=("reached", "all"), nan=("nan", "sum")
    )
    best = rates.reset_index("lr").loc[lambda table: table["mean"] == table.groupby(setting)["mean"].transform("min")]
    best = best.groupby(setting).first()[["lr", "mean", "least", "most"]]
    return best.join(rates.groupby(setting).agg(rates=("reached", "sum"), nan=("nan", "sum"))).unstack("scaled")


def main() -> None:
    torch.set_num_threads(1)
    if "--fresh" in sys.argv:
        RESULTS.unlink(missing_ok=True)
    done = set()
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            done = {tuple(row[name] for name in SETTING) for row in csv.DictReader(file)}
    else:
        RESULTS.write_text(",".join([*SETTING, *RESULT, *records.stamp()]) + "\n")
    todo = [setting for setting in settings() if tuple(map(str, setting)) not in done]
    for number, setting in enumerate(todo, start=1):
        optimizer, precision, attention, d_k, lr, scaled, seed, limit, goal = setting
        arm = {"scaled": scaled, "seed": seed, "optimizer": optimizer, "precision": precision}
        end = {"steps": limit, "goal": math.inf if goal == NO_GOAL else goal}
        run = train(d_k, lr, **arm, attention=ATTENTION[attention], **end)
        with RESULTS.open("a", newline="") as file:  # a row at a time, so that a run that was stopped goes on where it was
            csv.writer(file, lineterminator="\n").writerow([*setting, *result(run), *records.stamp().values()])
        print(f"{number}/{len(todo)}", *setting, f"90 % after {run.steps_to(0.9)}, NaN at {run.nan_step}", flush=True)


if __name__ == "__main__":
    if "--summary" not in sys.argv:
        main()
    with pd.option_context("display.width", 200, "display.max_columns", None, "display.precision", 3):
        print(summary(pd.read_csv(RESULTS)))
