"""Dates in many languages: that they are Babel's own, that tags mark what they say, and that languages are held out whole."""

import re
from collections import Counter
from datetime import date

import pytest
from babel import Locale
from babel.dates import format_date

from lib.study import dates
from lib.study.dates import Piece, date_pieces, load_languages, patterns, sentences, tag, tokenize
from lib.study.scores import spans

DAY = date(2024, 3, 17)


@pytest.fixture(scope="module")
def languages():
    return load_languages()


@pytest.fixture(scope="module")
def many(languages):
    return sentences(languages.train, 2000, seed=0)


def marked(sentence):
    """(kind, text) of each span."""
    return [(span.kind, " ".join(sentence.tokens[span.start : span.end])) for span in spans(sentence.tags)]


def test_there_are_300_languages_and_no_language_is_in_two_parts(languages):
    parts = (languages.train, languages.dev, languages.test)
    assert [len(part) for part in parts] == [236, 36, 28]
    assert len(set().union(*parts)) == 300
    for part in parts:
        assert all(name.split("_")[0] == language for language, locales in part.items() for name in locales)


def test_a_locale_without_names_of_months_is_left_out(languages):
    every = {name for part in (languages.train, languages.dev, languages.test) for locales in part.values() for name in locales}
    assert {"en", "zh_Hans_CN", "ar_EG", "hi"} <= every
    assert all(Locale.parse(name).months["format"]["wide"][1] != "M01" for name in every)
    assert len(every) > 1000


@pytest.mark.parametrize("length", ["short", "medium", "long", "full"])
def test_the_pieces_of_a_date_are_what_babel_writes(languages, length):
    for locales in (languages.train | languages.dev).values():
        pattern = Locale.parse(locales[0]).date_formats[length].pattern
        written = "".join(piece.text for piece in date_pieces(DAY, pattern, locales[0]))
        assert written == format_date(DAY, length, locale=locales[0])


def test_every_pattern_holds_a_month_or_a_year_and_most_hold_all_three(languages):
    kinds = Counter()
    for locales in languages.train.values():
        for pattern in patterns(locales[0]):
            found = {piece.kind for piece in date_pieces(DAY, pattern, locales[0])} - {""}
            assert found <= {"DAY", "MONTH", "YEAR"}
            kinds[frozenset(found)] += 1
    assert kinds[frozenset({"DAY", "MONTH", "YEAR"})] > 0.6 * kinds.total()
    assert kinds[frozenset({"MONTH", "YEAR"})] > 0


@pytest.mark.parametrize(
    ("locale", "length", "expected"),
    [
        ("en_US", "full", [("MONTH", "March"), ("DAY", "17"), ("YEAR", "2024")]),
        ("en_US", "short", [("MONTH", "3"), ("DAY", "17"), ("YEAR", "24")]),
        ("de", "long", [("DAY", "17"), ("MONTH", "März"), ("YEAR", "2024")]),
        ("zh", "long", [("YEAR", "2024"), ("MONTH", "3"), ("DAY", "17")]),
        ("vi", "long", [("DAY", "17"), ("MONTH", "tháng 3"), ("YEAR", "2024")]),
        ("es", "full", [("DAY", "17"), ("MONTH", "marzo"), ("YEAR", "2024")]),
        ("hi", "medium", [("DAY", "17"), ("MONTH", "मार्च"), ("YEAR", "2024")]),
    ],
)
def test_tags_mark_day_month_and_year_in_the_order_of_the_locale(locale, length, expected):
    pattern = Locale.parse(locale).date_formats[length].pattern
    tokens, tags = tag([Piece("17, "), *date_pieces(DAY, pattern, locale), Piece(" 2024")])
    assert [(span.kind, " ".join(tokens[span.start : span.end])) for span in spans(tags)] == expected


def test_a_piece_that_ends_within_a_word_has_no_tags():
    assert tag([Piece("ב"), Piece("מרץ", "MONTH")]) is None
    assert tag([Piece("ב "), Piece("מרץ", "MONTH")]) == (["ב", "מרץ"], ["O", "B-MONTH"])


def test_two_pieces_of_a_kind_side_by_side_are_two_spans():
    assert tag([Piece("7", "DAY"), Piece("."), Piece("8", "DAY")])[1] == ["B-DAY", "O", "B-DAY"]
    assert tag([Piece("3月", "MONTH"), Piece("März", "MONTH")]) is None  # letters that touch are one word


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("7. März 2024", ["7", ".", "März", "2024"]),
        ("2024年3月5日", ["2024", "年", "3", "月", "5", "日"]),
        ("05\u200f/03\u200f/24", ["05", "/", "03", "/", "24"]),
        ("मार्च", ["मार्च"]),  # vowel signs belong to the word
        ("l'été (50 %)", ["l", "'", "été", "(", "50", "%", ")"]),
        (" ", []),
    ],
)
def test_tokens_are_words_numbers_and_signs(text, tokens):
    assert tokenize(text) == tokens


def test_the_tokens_of_a_sentence_are_those_of_its_text(many):
    assert all(list(sentence.tokens) == tokenize(sentence.text) for sentence in many)
    assert all(len(sentence.tokens) == len(sentence.tags) for sentence in many)
    assert {name for sentence in many for name in sentence.tags} <= set(dates.TAGS)


def test_days_and_years_are_numbers_and_numbers_are_not_always_part_of_a_date(many):
    found = [pair for sentence in many for pair in marked(sentence)]
    assert all(re.fullmatch(r"\d{1,2}", text) for kind, text in found if kind == "DAY")
    assert all(re.fullmatch(r"(19|20)?\d\d", text) for kind, text in found if kind == "YEAR")
    outside = Counter(
        token for sentence in many for token, name in zip(sentence.tokens, sentence.tags, strict=True) if name == "O"
    )
    assert sum(outside[str(number)] for number in range(1, 32)) > 100
    assert sum(outside[str(number)] for number in range(1900, 2100)) > 100


def test_languages_are_drawn_equally_often_and_the_seed_draws_them(languages, many):
    assert sentences(languages.train, 50, seed=0) == many[:50]
    assert sentences(languages.train, 50, seed=1) != many[:50]
    drawn = Counter(sentence.locale.split("_")[0] for sentence in many)
    assert len(drawn) > 230
    assert max(drawn.values()) < 30  # 8.5 expected; English alone has a tenth of all locales


def test_without_languages_there_are_no_sentences():
    with pytest.raises(ValueError, match="at least one language"):
        sentences({}, 1, seed=0)
