"""Claim A3: does a BiLSTM lose accuracy beyond about 200 words, and does it depend on where the decisive passage stands?

Documents are texts on business with one passage of 40 words on another topic, which is the label (`lib.study.tasks`). Each
network is trained twice, on documents up to 200 words and up to 800, and tested at 50 to 800 words with the passage at five
places. The learning rate is the better of two on the dev part, at up to 200 words. Results: long_documents.csv beside this
file, one row for each network, training, seed, length and position. About 20 minutes on one core.

    python experiments/long_documents.py                        # all that the file does not hold yet
    python experiments/long_documents.py --only attention       # one network
    python experiments/long_documents.py --quick                # the small runs that a chapter repeats
"""

import argparse
from pathlib import Path

import torch

from lib.study import records, trials
from lib.study.classifiers import READERS

RESULTS = Path(__file__).with_suffix(".csv")
SEEDS = (0, 1, 2)
STEPS, QUICK_STEPS = 1000, 300


def run(network: str, **settings) -> None:
    """Train and test once, unless the file holds it already."""
    known = {name: settings[name] for name in ("longest", "steps", "lr", "seed", "part")}
    if not records.holds(RESULTS, network=network, **known):
        rows = trials.read_passages(network, **settings)
        records.append(RESULTS, rows)
        print(network, known, f"mean accuracy {sum(row['accuracy'] for row in rows) / len(rows):.3f}", flush=True)


def choose_rate(network: str) -> float:
    """The learning rate that does best on the dev part, at the lengths of the training."""
    rates = (1e-2, 3e-2) if network == "bag of words" else (2e-3, 5e-3)
    for lr in rates:
        run(network, longest=200, steps=STEPS, lr=lr, seed=0, part="dev", lengths=(50, 100, 200), positions=(0.0, 0.5, 1.0))
    dev = records.select(records.read(RESULTS), network=network, part="dev")
    return float(dev.groupby("lr")["accuracy"].mean().idxmax())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=READERS, help="one network instead of all")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STEPS} steps, documents up to 200 words, seed 0")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    networks = [arguments.only] if arguments.only else list(READERS)
    rates = {network: choose_rate(network) for network in networks}
    for network in networks:
        run(network, longest=200, steps=QUICK_STEPS, lr=rates[network], seed=0, part="test")
    if arguments.quick:
        return
    for longest in (200, 800):
        for seed in SEEDS:
            for network in networks:
                run(network, longest=longest, steps=STEPS, lr=rates[network], seed=seed, part="test")


if __name__ == "__main__":
    main()
