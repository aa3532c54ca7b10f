"""What the trainings of `experiments/masks.py` show of a fault in a mask, in words.

One rule decides what counts as a symptom: a loss below the floor with every seed, or a figure that lies, with every seed, on
the bad side of all seeds with sound masks, by more than these differ among themselves.
"""

from collections.abc import Mapping, Sequence

import pandas as pd
from IPython.display import HTML

from lib.study.mask_faults import NONE

LOSSES = ("train_loss", "eval_loss")
SHARES = ("written", "written_alone", "written_padded")


def at_best_rate(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs, one row each, at their fault's best rate: that with the lowest training loss with seed 0; NaN comes last.

    Args:
        runs: columns fault, lr, seed, train_loss, nan_step and more.
    """
    first = runs[runs["seed"] == 0]
    loss = first["train_loss"].where(first["nan_step"].isna(), first["train_loss"] + 100)
    best = first.assign(loss=loss).sort_values("loss").groupby("fault")["lr"].first()
    return runs[runs["lr"] == runs["fault"].map(best)]


def summary(runs: pd.DataFrame) -> pd.DataFrame:
    """Fault × (figure, mean or min or max over the seeds)."""
    return runs.groupby("fault")[[*LOSSES, *SHARES]].agg(["mean", "min", "max"])


def worse(row: pd.Series, sound: pd.Series, figure: str) -> bool:
    """Whether a figure is worse with every seed than with sound masks, by more than the sound seeds differ."""
    spread = sound[figure, "max"] - sound[figure, "min"]
    if figure in LOSSES:
        return bool(row[figure, "min"] > sound[figure, "max"] + spread)
    return bool(row[figure, "max"] < sound[figure, "min"] - spread)


def symptoms(figures: pd.DataFrame, fault: str, floor: float) -> list[str]:
    """What is to be seen of a fault without looking for it; nothing, in an empty list, if it is silent.

    Args:
        figures: as `summary` gives them, sound masks among them.
        fault: one of its rows.
        floor: the loss that no honest model goes below.
    """
    row, sound = figures.loc[fault], figures.loc[NONE]
    training, evaluation = (
        "below the floor" if row[loss, "max"] < floor else "too high" if worse(row, sound, loss) else "" for loss in LOSSES
    )
    if training and training == evaluation:
        seen = [f"loss {training}, in training and in evaluation"]
    else:
        seen = [f"{name} loss {word}" for name, word in (("training", training), ("evaluation", evaluation)) if word]
    if worse(row, sound, "written"):
        return [*seen, "writes badly"]
    where = (("written_alone", "without padding"), ("written_padded", "with more padding"))
    return seen + [f"writes badly {words}" for share, words in where if worse(row, sound, share)]


def sway(rows: pd.DataFrame, after: int = 500) -> pd.DataFrame:
    """(fault, lr) × (min, mean, max over the seeds): how far the training loss strays within 100 steps.

    Args:
        rows: columns fault, lr, seed, step and train_std, the deviation of the loss over the last 100 steps.
        after: only later steps count.
    """
    late = rows[rows["step"] > after].groupby(["fault", "lr", "seed"])["train_std"].mean()
    return late.groupby(["fault", "lr"]).agg(["min", "mean", "max"])


def wrapped(columns: Mapping[str, Sequence[str]]) -> HTML:
    """A table of sentences: aligned left, lines broken, so that it is no wider than the page.

    Args:
        columns: heading -> its cells, all of one number.
    """
    style = 'style="text-align: left; vertical-align: top; white-space: normal; min-width: 0"'
    table = pd.DataFrame(columns).to_html(index=False, border=0)
    return HTML(table.replace("<th>", f"<th {style}>").replace("<td>", f"<td {style}>"))
