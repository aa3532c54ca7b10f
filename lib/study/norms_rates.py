"""What the runs of experiments/norms.csv say about learning rates: which of them train, and how far apart they may be."""

import pandas as pd

from lib.study.norms import frequency_bits

NEAR = 0.1  # bits per letter: what counts as hardly different


def failed(runs: pd.DataFrame) -> pd.Series:
    """Whether each run ends hardly better, on dev words, than a guess by the frequencies of letters."""
    return runs["dev_bits"] > frequency_bits("dev") - NEAR


def compare(runs: pd.DataFrame, by: tuple[str, ...] = ("arrangement", "depth")) -> pd.DataFrame:
    """One row for each group of runs, from its grid of rates and seeds.

    Returns:
        Indexed by `by`, in the order in which groups come up. Columns: runs; failed, how many of them; width, how many rates
        in one unbroken row around the best one are within `NEAR` of it; best_lr, chosen by the mean over seeds on dev words;
        mean, lowest, highest, the bits per letter on test words at that rate over the seeds.

    Raises:
        ValueError: a group whose rates have not all the same seeds.
    """
    return pd.DataFrame({key: _one(group) for key, group in runs.groupby(list(by), sort=False)}).T.rename_axis(list(by))


def _one(runs: pd.DataFrame) -> pd.Series:
    seeds = runs.groupby("lr")["seed"].agg(lambda column: tuple(sorted(column)))
    if seeds.nunique() != 1:
        raise ValueError(f"each rate has to have the same seeds, got {seeds.to_dict()}.")
    dev = runs.groupby("lr")["dev_bits"].mean().sort_index()
    near = (dev <= dev.min() + NEAR).tolist()
    first = last = dev.index.get_loc(dev.idxmin())
    while first > 0 and near[first - 1]:
        first -= 1
    while last < len(near) - 1 and near[last + 1]:
        last += 1
    test = runs.loc[runs["lr"] == dev.idxmin(), "test_bits"]
    return pd.Series(
        {
            "runs": len(runs),
            "failed": int(failed(runs).sum()),
            "width": last - first + 1,
            "best_lr": dev.idxmin(),
            "mean": test.mean(),
            "lowest": test.min(),
            "highest": test.max(),
        },
        dtype=object,
    )
