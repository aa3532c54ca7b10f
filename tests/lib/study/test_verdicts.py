"""Verdicts: the line that is printed follows from the condition alone, and what is no condition is refused."""

import numpy
import pytest
import torch

from lib.study import verdicts
from lib.study.verdicts import summary, verdict

SENTENCES = {"yes": "every row sums to 1", "no": "some row does not sum to 1"}


@pytest.mark.parametrize("truth", [bool, numpy.bool_, torch.tensor], ids=["Python", "numpy", "torch"])
@pytest.mark.parametrize(
    ("holds", "when", "line"),
    [
        (True, False, "A14 · holds · every row sums to 1\n"),
        (True, True, "A14 · holds when · every row sums to 1\n"),
        (False, False, "A14 · does not hold here · some row does not sum to 1\n"),
        (False, True, "A14 · does not hold here · some row does not sum to 1\n"),
    ],
)
def test_the_condition_decides_which_line_is_printed(truth, holds, when, line, capsys):
    assert verdict("A14", holds=truth(holds), when=when, **SENTENCES) is None
    assert capsys.readouterr().out == line


@pytest.mark.parametrize(
    "holds",
    [
        1,
        0.0,
        "no",
        None,
        (True, "a message"),
        [],
        torch.tensor(1.0),
        torch.tensor([True]),
        torch.tensor([True, False]),
        numpy.array([True]),
    ],
    ids=repr,
)
def test_what_is_no_single_boolean_is_refused(holds, capsys):
    with pytest.raises(TypeError, match="holds is one boolean, got"):
        verdict("A14", holds=holds, **SENTENCES)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("claim", ["a14", "A", "14", "A0", "A014", "AB1", "A14 ", ""])
def test_an_id_of_another_form_is_refused(claim):
    with pytest.raises(ValueError, match="a letter and a number such as A5, got"):
        verdict(claim, holds=True, **SENTENCES)


@pytest.mark.parametrize("name", ["yes", "no"])
@pytest.mark.parametrize("sentence", ["", "  ", "two\nlines", "two\u2028lines", "trailing ", "ends\n"])
def test_a_sentence_that_is_not_one_line_is_refused(name, sentence):
    with pytest.raises(ValueError, match=f"^{name} is one line of text"):
        verdict("A14", holds=True, **SENTENCES | {name: sentence})


def test_a_verdict_that_cannot_come_out_otherwise_is_refused():
    with pytest.raises(ValueError, match="must be able to come out otherwise"):
        verdict("A14", holds=True, yes="the same", no="the same")


def test_the_summary_groups_what_was_given_and_the_last_word_counts(monkeypatch, capsys):
    monkeypatch.setattr(verdicts, "_given", {})
    for claim, holds, when in (
        ("B10", True, False),
        ("B2", True, False),
        ("B3", True, True),
        ("B4", True, False),
        ("B4", False, False),
    ):
        verdict(claim, holds=holds, when=when, **SENTENCES)
    capsys.readouterr()
    summary()
    assert capsys.readouterr().out == "holds: B2, B10\nholds when: B3\ndoes not hold here: B4\n"


def test_a_summary_without_verdicts_says_none(monkeypatch, capsys):
    monkeypatch.setattr(verdicts, "_given", {})
    summary()
    assert capsys.readouterr().out.count("none") == 3
