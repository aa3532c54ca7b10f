"""Claims B4, B5 and B6: what heads of a trained model look at, and how accuracy depends on their number at a fixed width.

Four tasks, all of width 64: two and four look-ups at once (one layer), the topic of an article (one layer), and hidden letters
of a phrase (two layers). The learning rate is the best of two or three on dev data, for each setting. Results: heads.csv, and
heads_profiles.csv with the measures of each head of the model of hidden letters; heads_blend.csv with the weights of one head
that has two look-ups to make, its read-out linear or not; heads_width.csv with the number and the width of heads set apart.
About an hour on one core.

    python experiments/heads.py                        # all that the files do not hold yet
    python experiments/heads.py --only "two look-ups"  # one task; "profiles", "blend", "width": the other files
"""

import argparse
from pathlib import Path

import torch

from lib.study import heads, heads_letters, heads_trials, records

RESULTS = Path(__file__).with_suffix(".csv")
PROFILES = Path(__file__).with_name("heads_profiles.csv")
BLEND = Path(__file__).with_name("heads_blend.csv")
WIDTHS = Path(__file__).with_name("heads_width.csv")
SEEDS = (0, 1, 2)
HEADS = {
    "two look-ups": (1, 2, 4, 8, 16, 32, 64),
    "four look-ups": (1, 2, 4, 8, 16, 64),
    "topics": (1, 8, 64),
    "letters": (1, 4, 16, 32),  # rotary positions turn pairs of columns, so a head is two wide at least
}
RATES = {
    "two look-ups": (1e-3, 3e-3, 1e-2),
    "four look-ups": (3e-3, 1e-2),
    "topics": (3e-3, 1e-2),
    "letters": (2e-3, heads_letters.RATE, 1e-2),
}
STEPS = {"two look-ups": 600, "four look-ups": 1000, "topics": 200, "letters": heads_letters.STEPS}
PLAIN = {"layers": 1, "feed_forward": False}
# Other ways to answer two questions with one head: a second layer, or a read-out that is not linear, and more patience.
# The last one is their control: two heads with such a read-out.
OTHERS = (
    {"heads": 1, "layers": 2},
    {"heads": 1, "steps": 3000},
    {"heads": 1, "feed_forward": True, "steps": 3000},
    {"heads": 1, "feed_forward": True},
    {"heads": 2, "feed_forward": True},
)
# Two look-ups: heads, columns of their queries and keys, steps. Narrow heads get higher rates and more steps, too.
APART = ((64, 8, 600), (2, 1, 600), (64, 1, 600), (64, 1, 1800))
APART_RATES = (3e-3, 1e-2, 3e-2)


def run(task: str, lr: float, seed: int, part: str, **setting) -> None:
    """Train and test once, unless the file holds it already."""
    setting = {"steps": STEPS[task]} | setting
    known = {"task": task, "lr": lr, "seed": seed, "part": part} | _plain(task) | setting
    if not records.holds(RESULTS, **known):
        row = heads_trials.TASKS[task](lr=lr, seed=seed, part=part, **setting)
        records.append(RESULTS, [row])
        print({**known, "accuracy": row["accuracy"], "loss": row["loss"]}, flush=True)


def choose_rate(task: str, **setting) -> float:
    """The learning rate that does best on dev data."""
    for lr in RATES[task]:
        run(task, lr, seed=0, part="dev", **setting)
    known = {"task": task, "part": "dev", "steps": STEPS[task]} | _plain(task) | setting
    dev = records.select(records.read(RESULTS), **known)
    return float(dev.groupby("lr")["accuracy"].mean().idxmax())


def _plain(task: str) -> dict:
    return PLAIN if task in heads_trials.LOOK_UPS else {}


def profile(seed: int, trained: bool) -> None:
    """Measure every head of one model of hidden letters, on dev phrases, unless the file holds it already."""
    if not records.holds(PROFILES, seed=seed, trained=trained):
        if trained:
            model, _ = heads_letters.train_guesser(seed)
        else:
            model = heads_letters.new_guesser(seed)
        found = heads.profile(model, heads_letters.whole_phrases()).round(4)
        records.append(PROFILES, [{"trained": trained, "seed": seed, **row} for row in found.to_dict("records")])
        print("profile", seed, trained, flush=True)


def blend(feed_forward: bool, seed: int) -> None:
    """One head on two look-ups, with the rate and the steps at which it succeeds behind a feed-forward network."""
    known = {"feed_forward": feed_forward, "steps": 3000, "lr": 1e-3, "seed": seed}
    if not records.holds(BLEND, **known):
        records.append(BLEND, [heads_trials.one_head_blend(**known)])
        print("blend", known, flush=True)


def width(heads: int, d_k: int, steps: int) -> None:
    """Number and width of heads set apart, at the rate that does best on dev data."""
    known = {"heads": heads, "d_k": d_k, "steps": steps}

    def once(**rest) -> None:
        if not records.holds(WIDTHS, **known, **rest):
            records.append(WIDTHS, [heads_trials.width(**known, **rest)])
            print("width", known, rest, flush=True)

    for lr in APART_RATES:
        once(lr=lr, seed=0, part="dev")
    dev = records.select(records.read(WIDTHS), **known, part="dev")
    lr = float(dev.set_index("lr")["accuracy"].idxmax())
    for seed in SEEDS:
        once(lr=lr, seed=seed, part="test")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=(*heads_trials.TASKS, "profiles", "blend", "width"), help="one task instead of all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.only in (None, "profiles"):
        for seed in SEEDS:
            profile(seed, trained=False)
            profile(seed, trained=True)
    if arguments.only in (None, "blend"):
        for seed in SEEDS:
            blend(True, seed)
            blend(False, seed)
    if arguments.only in (None, "width"):
        for setting in APART:
            width(*setting)
    for task in heads_trials.TASKS:
        if arguments.only in (None, task):
            settings = [{"heads": n} for n in HEADS[task]] + (list(OTHERS) if task == "two look-ups" else [])
            for setting in settings:
                lr = choose_rate(task, **setting)
                for seed in SEEDS:
                    run(task, lr, seed, part="test", **setting)


if __name__ == "__main__":
    main()
