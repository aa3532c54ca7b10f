"""A tagged sentence as a picture: every token with its tag and share, of one size whatever the text."""

import warnings

import matplotlib.pyplot as plt
import pytest

from lib.study.tag_pictures import tagged


def texts(figure):
    found = [text.get_text() for text in figure.axes[0].texts]
    plt.close(figure)
    return found


def test_every_token_stands_there_with_its_tag_and_share():
    written = texts(tagged(["7", "maart", "$5"], ["B-DAY", "B-MONTH", "O"], [0.91, 0.876, 1.0]))
    assert written == ["7", "B-DAY\n0.91", "maart", "B-MONTH\n0.88", "$5", "O\n1.00"]


def test_a_kind_of_span_has_one_color_whether_it_begins_or_goes_on():
    figure = tagged(["7", "8", "9"], ["B-DAY", "I-DAY", "O"], [1.0] * 3)
    first, second, third = (patch.get_edgecolor() for patch in figure.axes[0].patches)
    assert first == second != third
    plt.close(figure)


@pytest.mark.parametrize("count", [1, 100])
def test_the_size_is_fixed_and_what_has_no_room_is_marked(count):
    figure = tagged(["maart"] * count, ["B-MONTH"] * count, [0.5] * count)
    assert tuple(figure.get_size_inches()) == pytest.approx((6.4, 2.86))
    assert ("…" in texts(figure)) == (count == 100)


def test_the_number_of_rows_can_be_chosen():
    figure = tagged(["maart"] * 9, ["B-MONTH"] * 9, [0.5] * 9, rows=1)
    assert tuple(figure.get_size_inches()) == pytest.approx((6.4, 1.02))
    assert "…" in texts(figure)


@pytest.mark.parametrize(("count", "rows", "is_cut"), [(1, 1, False), (9, 2, False), (100, 3, True)])
def test_without_a_number_of_rows_there_are_as_many_as_the_tokens_fill(count, rows, is_cut):
    figure = tagged(["maart"] * count, ["B-MONTH"] * count, [0.5] * count, rows=None)
    assert figure.get_size_inches()[1] == pytest.approx(rows * 0.92 + 0.1)
    assert ("…" in texts(figure)) == is_cut


def test_ten_short_tokens_fit_in_one_row():
    figure = tagged(
        ["Lieferung", "bis", "7", ".", "März", "2024", ",", "19", ":", "30"],
        ["O", "O", "B-DAY", "I-DAY", "B-MONTH", "B-YEAR"] + ["O"] * 4,
        [1.0] * 10,
        rows=1,
    )
    assert "…" not in texts(figure)


def test_a_long_token_is_cut():
    assert texts(tagged(["a" * 40], ["O"], [1.0]))[0] == "a" * 15 + "…"


def test_signs_that_the_font_lacks_and_those_of_formulas_raise_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        texts(tagged(["2024年", "$", "x_2$"], ["O"] * 3, [1.0] * 3))
