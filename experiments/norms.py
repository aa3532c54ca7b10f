"""Claims E2 and E7: how deep a Transformer trains, over the learning rate, with its norms here, there, or gone.

Small models write the words of seven letters of CMUdict, letter by letter (lib/study/norms.py). Each is trained 200 steps with
Adam at a constant rate, nothing clipped, and scored in bits per letter on words held out; "warm-up" has the rate climb over 60
steps, "patience" trains 600. Results: norms.csv. About half an hour on one core.

    python experiments/norms.py                  # all that the file does not hold yet
    python experiments/norms.py --only warm-up   # one part: "grid", "ablation", "last norm", "warm-up", "patience"

What the words of the claims mean in numbers was fixed before the runs, when only a few rates at seed 0 had been tried to size
the training:

    fails            ends with more than frequency_bits − 0.1 on dev words: hardly better than a guess by letter frequencies,
                     or the loss was no finite number
    width in rates   how many rates of the grid, each twice the one before, in one unbroken row around the arm's best one have a
                     mean over seeds within 0.1 bits of that best one's
    best rate        that of the lowest mean over seeds on dev words; test words are looked at for it alone
"""

import argparse
from itertools import product
from pathlib import Path

import torch

from lib.study import norms, records

RESULTS = Path(__file__).with_suffix(".csv")
SEEDS = (0, 1, 2)
RATES = tuple(2.5e-4 * 2**k for k in range(7))  # 0.00025 … 0.016
FEW = RATES[::2]
# part -> arrangements, depths, rates, steps of warm-up, steps
PARTS = {
    "grid": (("pre-norm", "post-norm"), (2, 6, 12), RATES, 0, norms.STEPS),
    "ablation": (("no norm", "no residual", "neither"), (2, 6, 12), FEW, 0, norms.STEPS),
    "last norm": ((norms.LAST_NORM,), (12,), FEW, 0, norms.STEPS),
    "warm-up": (("post-norm", "pre-norm"), (12,), FEW, 60, norms.STEPS),
    "patience": (("post-norm", "pre-norm"), (12,), RATES[1:4], 0, 3 * norms.STEPS),
}


def run(arrangement: str, depth: int, lr: float, seed: int, warmup: int, steps: int) -> None:
    """Train and score once, unless the file holds it already."""
    known = {"arrangement": arrangement, "depth": depth, "lr": lr, "seed": seed, "warmup": warmup, "steps": steps}
    if not records.holds(RESULTS, **known):
        row = norms.trial(**known)
        records.append(RESULTS, [row])
        print({**known, "dev_bits": row["dev_bits"]}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, help="one part instead of all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for part, (arrangements, depths, rates, warmup, steps) in PARTS.items():
        if arguments.only in (None, part):
            for depth, seed, arrangement, lr in product(depths, SEEDS, arrangements, rates):
                run(arrangement, depth, lr, seed, warmup, steps)


if __name__ == "__main__":
    main()
