"""Claims E4 and E5: what layers bring to a small encoder, and what it brings to look both ways, on topics and on dates.

Topics: the topic of a BBC News article from its first 200 words, with no layer, one, two, and one that looks back only. Dates:
the spans of day, month and year in languages of their own, by two layers that look both ways or back only. Learning rates,
and for the topics the start of the word vectors, are chosen for each arm on the dev part, with one seed. Then three seeds on
the test part. Results: encoders_topics.csv and encoders_dates.csv beside this file. About 10 minutes on one core.

    python experiments/encoders.py                              # all that the files do not hold yet
    python experiments/encoders.py --only dates
"""

import argparse
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch

from lib.study import encoder_trials as trials
from lib.study import records

FOLDER = Path(__file__).parent
TOPICS, DATES = FOLDER / "encoders_topics.csv", FOLDER / "encoders_dates.csv"
SEEDS = (0, 1, 2)
STEPS, QUICK_STEPS, EPOCHS = 120, 60, 3
RATES = {"both ways": (2e-3, 5e-3, 1e-2), "one way": (2e-3, 5e-3, 1e-2)}
TOPIC_RATES = (1e-3, 3e-3, 1e-2, 3e-2)


def run(path: Path, trial: Callable[..., dict], **settings) -> dict:
    """Train and score once, unless the file holds it already; its row either way."""
    if not records.holds(path, **settings):
        records.append(path, [trial(**settings)])
    row = records.select(records.read(path), **settings).iloc[0].to_dict()
    print({name: row[name] for name in row if name not in ("date", "machine", "python", "torch")}, flush=True)
    return row


def topics(arm: str) -> None:
    """Choose on the dev part, then score the choice on the test part."""
    settings = [{"arm": arm, "steps": STEPS, "start": start, "lr": lr} for start, lr in product(trials.STARTS, TOPIC_RATES)]
    best = max(settings, key=lambda setting: run(TOPICS, trials.topics, **setting, seed=0, part="dev")["accuracy"])
    for seed in SEEDS:
        run(TOPICS, trials.topics, **best, seed=seed, part="test")
    if arm == "one layer":  # the short run that the chapter repeats
        run(TOPICS, trials.topics, **(best | {"steps": QUICK_STEPS}), seed=0, part="test")


def dates(arm: str) -> None:
    """The same for a tagger."""
    settings = [{"arm": arm, "epochs": EPOCHS, "lr": lr} for lr in RATES[arm]]
    best = max(settings, key=lambda setting: run(DATES, trials.spans, **setting, seed=0, part="dev")["all"])
    for seed in SEEDS:
        run(DATES, trials.spans, **best, seed=seed, part="test")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("topics", "dates"), help="one task instead of both")
    only = parser.parse_args().only
    torch.set_num_threads(1)
    if only != "topics":
        for arm in trials.DATES:
            dates(arm)
    if only != "dates":
        for arm in trials.ARMS:
            topics(arm)


if __name__ == "__main__":
    main()
