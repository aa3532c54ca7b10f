"""Claims M3, M5 and M7: what a wrong mask does to a training, and what padding does to a reader of news.

First: the small Transformer of `lib.study.mask_faults` learns to write words backwards (`lib.study.mask_trials`), with sound
masks, with each of the planted faults, and with both masks forgotten. The learning rate is, for each of them, the one of three
whose training loss is lowest with seed 0: somebody who does not know of the fault would look at nothing else. Second: an
encoder classifies short news texts, trained with the padding mask and without (`lib.study.mask_documents`), and meets more
padding in the test; its learning rate is the best of three on dev data.

Results: masks.csv beside this file. About 25 minutes on one core.

    python experiments/masks.py                      # all that the file does not hold yet
    python experiments/masks.py --only documents     # or: words
"""

import argparse
from pathlib import Path

import torch

from lib.study import mask_documents as documents
from lib.study import mask_trials as trials
from lib.study import records
from lib.study.mask_faults import FAULTS, NO_MASK, NONE

RESULTS = Path(__file__).with_suffix(".csv")
SEEDS = (0, 1, 2)
RATES = (1e-3, 3e-3, 1e-2)
STEPS, EVERY = 1000, 100

DOCUMENT_STEPS = 300
DOCUMENT_RATES = (3e-3, 1e-2, 3e-2)
MORE = (0, 32, 64, 128, 256)
COLUMNS = (
    "task", "fault", "lr", "seed", "steps", "step", "nan_step", "train_loss", "train_floor", "train_std", "eval_loss", "floor",
    "written", "written_alone", "written_padded", "part", "more", "content", "accuracy", "moved",
)  # fmt: skip


def save(rows: list[dict]) -> None:
    """Write rows, each with all columns."""
    records.append(RESULTS, [{name: row.get(name) for name in COLUMNS} for row in rows])


def missing(**values: object) -> bool:
    """Whether the file holds no row with these values."""
    return records.select(records.read(RESULTS), **values).empty


def words(fault: str, lr: float, seed: int) -> None:
    """Train once, unless the file holds it already."""
    known = {"task": "words", "fault": fault, "lr": lr, "seed": seed, "steps": STEPS}
    if missing(**known):
        rows = trials.train(fault, steps=STEPS, lr=lr, seed=seed, every=EVERY)
        save([known | row for row in rows])
        print(known, {name: rows[-1][name] for name in ("nan_step", "train_loss", "eval_loss", "written")}, flush=True)


def best_rate(fault: str) -> float:
    """The learning rate with the lowest training loss at the end, with the first seed. One that met NaN comes last."""
    rows = records.select(records.read(RESULTS), task="words", fault=fault, seed=SEEDS[0], steps=STEPS)
    last = rows.groupby("lr").last()  # of each column the last value there is
    return float(last["train_loss"].where(last["nan_step"].isna(), last["train_loss"] + 100).idxmin())


def read_documents() -> None:
    """Train with the mask and without; choose the rate on dev; test over amounts and contents of padding."""
    for fault, masked in ((NONE, True), ("padding forgotten", False)):
        known = {"task": "documents", "fault": fault, "steps": DOCUMENT_STEPS}
        for lr in DOCUMENT_RATES:
            if missing(**known, lr=lr, part="dev"):
                model = documents.train(masked, lr=lr, seed=0, steps=DOCUMENT_STEPS)
                save([known | {"lr": lr, "seed": 0, "part": "dev", "accuracy": documents.accuracy(model, masked, part="dev")}])
        dev = records.select(records.read(RESULTS), **known, part="dev")
        lr = float(dev.groupby("lr")["accuracy"].mean().idxmax())
        for seed in SEEDS:
            if not missing(**known, lr=lr, seed=seed, part="test"):
                continue
            model = documents.train(masked, lr=lr, seed=seed, steps=DOCUMENT_STEPS)
            rows = []
            for content in ("padding", "words"):
                for more in MORE:
                    given = {"more": more, "content": content}
                    for name, with_mask in ((fault, masked), *((("mask dropped in the test", False),) if masked else ())):
                        row = known | {"fault": name, "lr": lr, "seed": seed, "part": "test"} | given
                        row["accuracy"] = round(documents.accuracy(model, with_mask, part="test", **given), 4)
                        row["moved"] = float(f"{documents.movement(model, with_mask, part='test', **given):.3g}")
                        rows.append(row)
            save(rows)
            print(known, seed, [row["accuracy"] for row in rows], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("words", "documents"), help="one task instead of both")
    only = parser.parse_args().only
    torch.set_num_threads(1)
    if only != "words":
        read_documents()
    if only != "documents":
        for fault in (NONE, NO_MASK, *FAULTS):
            for lr in RATES:
                words(fault, lr, seed=SEEDS[0])
            for seed in SEEDS[1:]:
                words(fault, best_rate(fault), seed)


if __name__ == "__main__":
    main()
