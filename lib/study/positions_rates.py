"""Which learning rate a kind of position is judged by: chosen on dev sequences, near the trained length or far from it."""

import math

import numpy as np
import pandas as pd

from lib.study.positions import TRAINED


def best_rates(table: pd.DataFrame, length: int) -> pd.DataFrame:
    """The learning rate of each task and model in a table of runs, chosen on dev sequences of a length, with seed 0.

    At the trained length, all rates may be right everywhere, so the bits of the right answers decide. Beyond it, a model
    that is wrong is sure of itself, so accuracy decides, or bits in text, among the rates that are about as good as the best
    one at the trained length: within 2 points of accuracy, or 0.05 bits in text.

    Returns:
        Columns task, model, lr. The model is the kind that was trained: "learned", also where its table was interpolated.
    """
    table = table.assign(model=table["kind"].str.removesuffix(", interpolated"))
    dev = table[(table["part"] == "dev") & (table["seed"] == 0)].set_index(["task", "model", "lr"])
    near, far = (dev[dev["length"] == L] for L in (TRAINED, length))
    text = near.index.get_level_values("task") == "text"
    short = near["accuracy"].groupby(["task", "model"]).transform("max") - near["accuracy"]
    costly = near["bits"] - near["bits"].groupby(["task", "model"]).transform("min")
    good = np.where(text, costly <= 0.05, short <= 0.02) | (length == TRAINED)
    merit = far["accuracy"].where(~text & (length != TRAINED), -far["bits"])
    chosen = merit.where(pd.Series(good, near.index), -math.inf).groupby(["task", "model"]).idxmax()
    return pd.DataFrame(list(chosen), columns=["task", "model", "lr"])
