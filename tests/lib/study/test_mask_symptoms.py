"""What counts as a symptom: figures beyond those with sound masks, by more than these differ among themselves."""

import pandas as pd
import pytest

from lib.study import mask_symptoms as study
from lib.study.mask_faults import NONE

FLOOR = 0.8
SOUND = {"train_loss": (0.84, 0.85), "eval_loss": (0.80, 0.85), "written": (0.95, 0.98)}
SOUND |= {"written_alone": (0.95, 0.98), "written_padded": (0.95, 0.98)}


def runs(fault: str, **figures: tuple[float, float]) -> pd.DataFrame:
    """Two seeds, sound where nothing is given."""
    rows = [{"fault": fault, "lr": 0.01, "seed": seed, "nan_step": None} for seed in (0, 1)]
    for seed, row in enumerate(rows):
        row |= {name: values[seed] for name, values in (SOUND | figures).items()}
    return pd.DataFrame(rows)


def seen(**figures: tuple[float, float]) -> list[str]:
    return study.symptoms(study.summary(pd.concat([runs(NONE), runs("fault", **figures)])), "fault", FLOOR)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, []),
        ({"train_loss": (0.855, 0.9)}, []),  # one seed is within the spread of the sound ones
        ({"train_loss": (0.87, 0.9)}, ["training loss too high"]),
        ({"train_loss": (0.1, 0.2)}, ["training loss below the floor"]),
        ({"train_loss": (0.1, 0.81)}, []),
        ({"eval_loss": (3.0, 4.0)}, ["evaluation loss too high"]),
        (
            {"train_loss": (0.1, 0.2), "eval_loss": (0.1, 0.1)},
            ["loss below the floor, in training and in evaluation"],
        ),
        ({"written": (0.1, 0.2), "written_alone": (0.1, 0.2)}, ["writes badly"]),
        ({"written": (0.1, 0.97)}, []),
        ({"written_alone": (0.2, 0.3)}, ["writes badly without padding"]),
        ({"written_padded": (0.90, 0.91)}, ["writes badly with more padding"]),
        ({"written_padded": (0.93, 0.94)}, []),
    ],
)
def test_symptoms_follow_the_rule(figures, expected):
    assert seen(**figures) == expected


def test_the_best_rate_has_the_lowest_training_loss_with_seed_0_and_nan_is_last():
    slow = runs("fault").assign(lr=0.001, train_loss=0.9)
    fast = runs("fault").assign(lr=0.01, train_loss=[0.7, 2.0])
    lost = runs("fault").assign(lr=0.1, train_loss=0.1, nan_step=7)
    best = study.at_best_rate(pd.concat([slow, fast, lost]))
    assert best["lr"].tolist() == [0.01, 0.01]


def test_sway_is_the_mean_deviation_of_late_steps_over_the_seeds():
    rows = pd.DataFrame({"fault": "a", "lr": 0.1, "seed": [0, 0, 0, 1], "step": [500, 600, 700, 600]})
    rows["train_std"] = [9.0, 0.1, 0.3, 0.4]
    assert study.sway(rows).loc[("a", 0.1)].tolist() == pytest.approx([0.2, 0.3, 0.4])


def test_a_table_of_sentences_is_aligned_left_and_breaks_its_lines():
    page = study.wrapped({"fault": ["a < b", "c"], "check": ["first", "second"]}).data
    assert page.count("<th style=") == 2
    assert page.count("<td style=") == 4
    assert page.count("white-space: normal") == page.count("text-align: left") == 6
    assert "a &lt; b" in page
    assert "<th></th>" not in page  # no column of row numbers
