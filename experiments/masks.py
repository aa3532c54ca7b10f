"""Claims M3, M5 and M7: what a wrong mask does to a training, and what padding does to a reader of news.

First: the small Transformer of `lib.study.mask_faults` learns to write words backwards (`lib.study.mask_trials`). With sound
masks and with one or both forgotten it is trained at each of three learning rates, so that versions are compared at equal
rates; and for a shorter time, up to large rates, without clipping the gradient. With each of the planted faults it is trained
at the rate of the three whose training loss is lowest with seed 0: somebody who does not know of the fault would look at
nothing else. Second: an encoder classifies short news texts, trained with the padding mask and without
(`lib.study.mask_documents`), and meets more padding in the test, where it may also lose the mask in its attention, in its
final mean, or in both; its learning rate is the best of three on dev data.

Results: masks.csv beside this file. About half an hour on one core.

    python experiments/masks.py                      # all that the file does not hold yet
    python experiments/masks.py --only documents     # or: forgotten, unclipped, faults
"""

import argparse
import math
from pathlib import Path

import torch

from lib.study import mask_documents as documents
from lib.study import mask_trials as trials
from lib.study import records
from lib.study.mask_faults import FAULTS, NO_CAUSAL, NO_MASK, NO_PADDING, NONE

RESULTS = Path(__file__).with_suffix(".csv")
SEEDS = (0, 1, 2)
RATES = (1e-3, 3e-3, 1e-2)
STEPS, EVERY = 1000, 100
FORGOTTEN = (NONE, NO_PADDING, NO_CAUSAL, NO_MASK)
BY_LENGTH = 1e-2  # at this rate it is also noted what is written of words of each length
UNCLIPPED_STEPS, UNCLIPPED_RATES = 300, (1e-2, 3e-2, 1e-1)

DOCUMENT_STEPS = 300
DOCUMENT_RATES = (3e-3, 1e-2, 3e-2)
MORE = (0, 32, 64, 128, 256)
DROPPED = "mask dropped in the test"
COLUMNS = (
    "task", "fault", "lr", "clip", "seed", "steps", "step", "nan_step", "train_loss", "train_floor", "train_std", "eval_loss",
    "floor", "written", "written_alone", "written_padded", "part", "more", "content", "accuracy", "moved", "length",
)  # fmt: skip


def save(rows: list[dict]) -> None:
    """Write rows, each with all columns."""
    records.append(RESULTS, [{name: row.get(name) for name in COLUMNS} for row in rows])


def words(fault: str, lr: float, seed: int, steps: int = STEPS, clip: float = 1.0) -> None:
    """Train once, unless the file holds it already."""
    known = {"task": "words", "fault": fault, "lr": lr, "clip": clip, "seed": seed, "steps": steps}
    if not records.holds(RESULTS, **known):
        model = trials.build(fault, seed)
        rows = trials.train(fault, steps=steps, lr=lr, seed=seed, every=EVERY, clip=clip, model=model)
        if fault in (NONE, NO_PADDING) and (lr, steps) == (BY_LENGTH, STEPS):
            by_length = trials.written_by_length(model).items()
            rows += [{"part": "alone", "length": n, "written": round(share, 4)} for n, share in by_length]
        save([known | row for row in rows])
        shown = rows[min(len(rows), steps // EVERY) - 1]
        print(known, {name: shown[name] for name in ("nan_step", "train_loss", "eval_loss", "written")}, flush=True)


def best_rate(fault: str) -> float:
    """The learning rate with the lowest training loss at the end, with the first seed. One that met NaN comes last."""
    rows = records.select(records.read(RESULTS), task="words", fault=fault, seed=SEEDS[0], steps=STEPS)
    rows = rows[rows["step"].notna()]
    last = rows.groupby("lr").last()  # of each column the last value there is
    return float(last["train_loss"].where(last["nan_step"].isna(), last["train_loss"] + 100).idxmin())


def read_documents() -> None:
    """Train with the mask and without; choose the rate on dev; test over amounts and contents of padding."""
    for fault, masked in ((NONE, True), (NO_PADDING, False)):
        known = {"task": "documents", "fault": fault, "steps": DOCUMENT_STEPS}
        for lr in DOCUMENT_RATES:
            if not records.holds(RESULTS, **known, lr=lr, part="dev"):
                model = documents.train(masked, lr=lr, seed=0, steps=DOCUMENT_STEPS)
                save([known | {"lr": lr, "seed": 0, "part": "dev", "accuracy": documents.accuracy(model, masked, part="dev")}])
        dev = records.select(records.read(RESULTS), **known, part="dev")
        lr = float(dev.groupby("lr")["accuracy"].mean().idxmax())
        for seed in SEEDS:
            names = [fault] + ([DROPPED, *(f"mask dropped in the {part}" for part in ("attention", "mean"))] if masked else [])
            tests = {"lr": lr, "seed": seed, "part": "test"}
            names = [name for name in names if not records.holds(RESULTS, **known | {"fault": name} | tests)]
            if names:
                model = documents.train(masked, lr=lr, seed=seed, steps=DOCUMENT_STEPS)
                rows = [row for name in names for row in tested(model, name)]
                save([known | tests | row for row in rows])
                print(known, seed, [(row["fault"], row["accuracy"]) for row in rows], flush=True)


def tested(model: documents.EncoderClassifier, name: str) -> list[dict]:
    """Accuracy over amounts and contents of padding, and how far the outputs at real words move."""
    in_attention = name not in (NO_PADDING, DROPPED, "mask dropped in the attention")
    part = name.removeprefix("mask dropped in the ")
    reader = documents.forgetting(model, part) if part in ("attention", "mean") else model
    rows = []
    for content in ("padding", "words"):
        for more in MORE:
            given = {"part": "test", "more": more, "content": content}
            accuracy = documents.accuracy(reader, name not in (NO_PADDING, DROPPED), **given)
            moved = documents.movement(model, in_attention, **given)
            rows.append({"fault": name, **given, "accuracy": round(accuracy, 4), "moved": float(f"{moved:.3g}")})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("documents", "forgotten", "unclipped", "faults"), help="one part instead of all")
    only = parser.parse_args().only
    torch.set_num_threads(1)
    if only in (None, "documents"):
        read_documents()
    if only in (None, "forgotten"):
        for lr in reversed(RATES):
            for fault in FORGOTTEN:
                for seed in SEEDS:
                    words(fault, lr, seed)
    if only in (None, "unclipped"):
        for lr in UNCLIPPED_RATES:
            for fault in FORGOTTEN:
                for seed in SEEDS:
                    words(fault, lr, seed, UNCLIPPED_STEPS, math.inf)
    if only in (None, "faults"):
        for fault in FAULTS:
            for lr in RATES:
                words(fault, lr, seed=SEEDS[0])
            for seed in SEEDS[1:]:
                words(fault, best_rate(fault), seed)


if __name__ == "__main__":
    main()
