"""Claims F3, F4 and F7: what each form of attention can still look up, over distance, length, and number of things to keep.

The task is `lib/study/recall_distance.py`: pairs of a key and a value stand among filler, and the last 8 tokens each ask for
the value of a key. All forms stand in the same model, causal, 2 layers of width 64 with 2 heads, and train alike on lengths
from 64 to 256 with few pairs and many. A query has about 32 links at length 256 in each of the sparse forms. The learning rate
is the best on dev questions, for each form. About 20 minutes on one core; rows that the file holds are not made again.

    python experiments/recall_distance.py                  # all that recall_distance.csv does not hold yet
    python experiments/recall_distance.py --only windowed  # one form

Columns of recall_distance.csv, a row for each training run and cell of the test:
    form                        key of FORMS: full, windowed, strided, window + stride, segmented, linear (elu), …
    steps, lr, seed, parameters of the run; every run is tested on "dev" and, at the chosen rate, on "test"
    train_loss                  mean of the last 50 steps
    part                        "dev" or "test"
    length, pairs               of the sequences tested
    nearest, farthest           distance between question and pair in tokens, both included: 1–16, 17–32, 33–64, 65–128, 129–256
    questions, accuracy         number of questions in this cell, and the share answered right; a guess is right once in 16
    date, machine, python, torch
"""
