"""Claim E6: models that see their answers in training, beside a sound one. One row of honesty.csv for each training run.

Small Transformers learn to pronounce words of up to six letters (`lib.study.honesty`): one is sound, one has no causal mask in
its decoder, one reads its own labels, not shifted. Three seeds each, at one learning rate. The loss on dev words is measured in
the same way as in training; the share of wrong words is of what the model writes by itself, greedily.

    python experiments/honesty.py          # adds the rows that are missing; about two minutes on one idle core in all

Columns: losses are in nats per phoneme, words is a share, sample is what each makes of `honesty.SAMPLE`.
"""

from pathlib import Path

import torch

from lib.study import honesty, records
from lib.study.pronunciation import load_cmudict

RESULTS = Path(__file__).with_suffix(".csv")
SEEDS = (0, 1, 2)


def main() -> None:
    torch.set_num_threads(1)
    lexicon = load_cmudict()
    for version in honesty.VERSIONS:
        for seed in SEEDS:
            known = {"version": version, "seed": seed, "steps": honesty.STEPS}
            if records.holds(RESULTS, **known):
                continue
            found = honesty.train(version, lexicon, seed)
            found = {name: round(x, 5) if isinstance(x, float) else x for name, x in found.items()}
            records.append(RESULTS, [known | {"lr": honesty.LR} | found])
            print(version, seed, found, flush=True)


if __name__ == "__main__":
    main()
