"""The floors: what counting alone gets, against slow loops over the same sequences, and against what chance says."""

import math
from collections import Counter

import pytest

from lib.study import positions, positions_floors
from lib.study.positions import DIGITS, SCORED, START, UNSCORED, draw_batches
from lib.study.positions_floors import counting, frequency_bits


def seen(task, tokens, place):
    """The tokens that a model without order may choose from."""
    if task == "mirror":
        return tokens
    if task == "three back":
        return [token for token in tokens[: place + 1] if token != START]
    letter = (tokens[place] - 1) // DIGITS
    return [token for token in tokens[1:place] if (token - 1) // DIGITS == letter]


@pytest.mark.parametrize("task", ["three back", "latest", "mirror"])
@pytest.mark.parametrize("L", [32, 48])
def test_counting_names_one_of_the_most_frequent_tokens(task, L):
    batch = next(draw_batches(task, positions_floors.TEST_SEED, L=L, part="test", B=128))
    chances = []
    for tokens, labels in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True):
        for place in range(L - SCORED, L):
            if labels[place] == UNSCORED:
                continue
            counts = Counter(seen(task, tokens, place))
            most = [token for token, count in counts.items() if count == max(counts.values())]
            chances.append((labels[place] in most) / len(most))
    assert counting(task, L, batches=1) == pytest.approx(sum(chances) / len(chances), abs=1e-6)


def test_counting_gets_worse_with_length_and_never_worse_than_guessing():
    for task, guess in (("three back", 1 / 16), ("latest", 1 / 5), ("mirror", 1 / 16)):
        short, long = counting(task, 32, batches=1), counting(task, 128, batches=1)
        assert guess < long < short < 0.6


def test_the_bits_of_characters_are_near_their_entropy():
    text = positions._characters("test")
    shares = [count / len(text) for count in Counter(text.tolist()).values()]
    entropy = -sum(share * math.log2(share) for share in shares)
    assert frequency_bits(batches=2) == pytest.approx(entropy, abs=0.1)
