"""What runs say about rates: failures, the width around the best rate, and scores on test words at the rate chosen on dev."""

import pandas as pd
import pytest

from lib.study import norms_rates
from lib.study.norms_rates import compare, failed


@pytest.fixture(autouse=True)
def letters_of_four_bits(monkeypatch):
    monkeypatch.setattr(norms_rates, "frequency_bits", lambda part: {"dev": 4.0}[part])


def table(**arms):
    """Arm -> rate -> the dev bits of the seeds; test bits are those plus 0.01."""
    rows = [
        {"arrangement": arm, "depth": 3, "lr": lr, "seed": seed, "dev_bits": bits, "test_bits": bits + 0.01}
        for arm, rates in arms.items()
        for lr, seeds in rates.items()
        for seed, bits in enumerate(seeds)
    ]
    return pd.DataFrame(rows)


def test_a_run_fails_if_it_is_hardly_better_than_frequencies():
    runs = table(a={0.1: [3.89, 3.91, 4.5]})
    assert failed(runs).tolist() == [False, True, True]


def test_width_is_one_unbroken_row_around_the_best_rate():
    arm = {0.1: [3.05, 3.05], 0.2: [3.2, 3.2], 0.4: [3.09, 3.09], 0.8: [3.0, 3.0], 1.6: [3.3, 2.9], 3.2: [3.95, 3.95]}
    found = compare(table(a=arm)).loc[("a", 3)]
    assert found["width"] == 3  # 0.4, 0.8 and 1.6; 0.1 is near too, but 0.2 between is not
    assert found["best_lr"] == 0.8
    assert (found["runs"], found["failed"]) == (12, 2)


def test_the_best_rate_is_that_of_the_mean_over_seeds_and_scored_on_test():
    arms = {"lucky": {0.1: [2.0, 3.6], 0.2: [2.7, 2.7]}, "steady": {0.1: [3.0, 3.0], 0.2: [3.5, 3.4]}}
    found = compare(table(**arms))
    assert list(found.index) == [("lucky", 3), ("steady", 3)]
    assert found["best_lr"].tolist() == [0.2, 0.1]
    assert found.loc[("lucky", 3), ["mean", "lowest", "highest"]].tolist() == pytest.approx([2.71, 2.71, 2.71])
    runs = table(**arms)
    assert compare(runs.sample(frac=1, random_state=0)).loc[("steady", 3), "highest"] == pytest.approx(3.01)


def test_rates_are_in_a_row_by_size_whatever_the_order_of_the_rows():
    runs = table(a={0.4: [3.0], 0.1: [3.9], 0.2: [3.05]})
    assert compare(runs).loc[("a", 3), "width"] == 2


def test_rates_with_unequal_seeds_are_refused():
    with pytest.raises(ValueError, match="the same seeds"):
        compare(table(a={0.1: [3.0, 3.1], 0.2: [3.0]}))
