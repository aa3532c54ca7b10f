"""Edit distance, error rates and span F1: against values worked out by hand, a slow definition, and what must always hold."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.study.scores import Span, SpanScores, closest, edit_distance, error_rates, span_scores, spans

words = st.text("abc", max_size=6)


def slow_distance(a, b):
    """The definition, from the ends: every edit of the last items, tried."""

    @cache
    def distance(i, j):
        if not i or not j:
            return i + j
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return distance(len(a), len(b))


@pytest.mark.parametrize(("a", "b", "edits"), [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("ab", "ba", 2)])
def test_edit_distance_of_known_pairs(a, b, edits):
    assert edit_distance(a, b) == edits


@given(words, words)
def test_edit_distance_equals_its_definition_and_is_symmetric(a, b):
    assert edit_distance(a, b) == edit_distance(b, a) == slow_distance(a, b)


@given(words, words, words)
def test_edit_distance_is_a_distance(a, b, c):
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


def test_edit_distance_compares_items_and_not_letters():
    assert edit_distance(["AH", "B"], ["A", "H", "B"]) == 2


def test_a_prediction_is_compared_with_its_closest_reference():
    either = [("IY", "DH", "ER"), ("AY", "DH", "ER")]
    assert closest(("AY", "DH", "ER"), either) == (0, 3)
    assert closest(("AY", "D", "ER"), either) == (1, 3)
    assert closest(("A",), [("B",), ("B", "A")]) == (1, 2)  # one edit each, and fewer per phoneme of the second


def test_error_rates_count_words_once_and_every_edit():
    predictions = [("K", "AE", "T"), ("D", "AO", "G", "Z"), ("EH",)]
    references = [[("K", "AE", "T")], [("D", "AO", "G"), ("D", "AA", "G")], [("AH", "N"), ("EH", "N", "D")]]
    rates = error_rates(predictions, references)
    assert rates.words == 2 / 3
    assert rates.phonemes == (0 + 1 + 2) / (3 + 3 + 3)  # "EH" is two edits from both; the longer has fewer per phoneme


@pytest.mark.parametrize(("predictions", "references"), [([], []), ([("K",)], []), ([("K",)], [[("K",)], [("K",)]])])
def test_predictions_without_their_references_are_refused(predictions, references):
    with pytest.raises(ValueError, match=f"got {len(predictions)} and {len(references)}"):
        error_rates(predictions, references)


def test_a_word_without_references_is_refused():
    with pytest.raises(ValueError, match="at least one reference"):
        error_rates([("K",)], [[]])


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-DAY O", [Span("DAY", 1, 2)]),
        ("B-DAY I-DAY B-DAY", [Span("DAY", 0, 2), Span("DAY", 2, 3)]),
        ("B-DAY I-MONTH I-MONTH", [Span("DAY", 0, 1), Span("MONTH", 1, 3)]),  # a stray I begins
        ("I-YEAR O I-YEAR", [Span("YEAR", 0, 1), Span("YEAR", 2, 3)]),
        ("O O", []),
    ],
)
def test_spans_of_bio_tags(tags, expected):
    assert spans(tags.split()) == expected


def test_a_span_counts_only_with_the_right_kind_start_and_end():
    true = [["B-DAY", "I-DAY", "O", "B-YEAR"], ["O", "B-MONTH"]]
    assert span_scores(true, true) == SpanScores(1.0, 1.0, 1.0)
    too_short = [["B-DAY", "O", "O", "B-YEAR"], ["O", "B-DAY"]]
    assert span_scores(too_short, true) == SpanScores(1 / 3, 1 / 3, 1 / 3)
    assert span_scores(too_short, true, "YEAR") == SpanScores(1.0, 1.0, 1.0)
    assert span_scores(too_short, true, "DAY") == SpanScores(0.0, 0.0, 0.0)


def test_precision_and_recall_are_told_apart():
    scores = span_scores([["B-DAY", "B-DAY", "O"]], [["B-DAY", "O", "O"]])
    assert (scores.precision, scores.recall, scores.f1) == (0.5, 1.0, 2 / 3)


def test_no_spans_at_all_score_nothing():
    assert span_scores([["O"]], [["O"]]) == SpanScores(0.0, 0.0, 0.0)


def test_tags_of_unequal_number_are_refused():
    with pytest.raises(ValueError, match="2 tokens has 1 predicted"):
        span_scores([["O"]], [["O", "O"]])
    with pytest.raises(ValueError, match="zip"):
        span_scores([["O"]], [])
