"""What a report says, as text and in a notebook, and the single assertions."""

import math
from html.parser import HTMLParser

import pytest
import torch

import lib.diagnostics as diagnostics
from lib.diagnostics import COULD_NOT_RUN, FAILED, PASSED, Finding, Measurement, Report, diagnose
from tests.lib import checks
from tests.lib.faulty_module import PlainAttention, call, step

GOOD, BAD = Measurement("a figure", "train", 1e-7, 2e-5), Measurement("a leak", "eval", 0.5, 0.0)


class TestMeasurement:
    @pytest.mark.parametrize(
        ("value", "tolerance", "at_least", "passed"),
        [
            (0.0, 0.0, False, True),
            (1e-30, 0.0, False, False),
            (2e-5, 2e-5, False, True),
            (3e-5, 2e-5, False, False),
            (math.inf, 2e-5, False, False),
            (math.nan, 2e-5, False, False),
            (1.0, 0.5, True, True),
            (0.4, 0.5, True, False),
            (0.0, 0.5, True, False),
            (math.nan, 0.5, True, False),
        ],
    )
    def test_keeps_its_bound_or_not(self, value, tolerance, at_least, passed):
        one = Measurement("", "", value, tolerance, at_least)
        assert one.passed == passed
        assert (one.excess <= 1) == passed

    def test_shows_its_bound_with_the_direction(self):
        assert BAD.bound == "≤ 0"
        assert Measurement("", "", 1.0, 0.05, at_least=True).bound == "≥ 0.05"


class TestFinding:
    @pytest.mark.parametrize(
        ("measurements", "reasons", "result"),
        [
            ((GOOD,), (), PASSED),
            ((GOOD, BAD), (), FAILED),
            ((GOOD, BAD), ("not in train",), FAILED),
            ((GOOD,), ("not in train",), COULD_NOT_RUN),
            ((), ("no step",), COULD_NOT_RUN),
            ((), (), COULD_NOT_RUN),
        ],
    )
    def test_passes_only_if_it_ran_everywhere_and_all_is_well(self, measurements, reasons, result):
        assert Finding("check", measurements, reasons).result == result

    def test_shows_the_figure_that_is_farthest_beyond_its_bound(self):
        worse = Measurement("a larger leak", "train", math.nan, 1.0)
        assert Finding("check", (GOOD, BAD)).worst is BAD
        assert Finding("check", (GOOD, Measurement("", "", 1e-6, 2e-5))).worst.value == 1e-6
        assert Finding("check", (GOOD, Measurement("", "", 0.3, 0.1), worse)).worst is worse
        assert Finding("check").worst is None


REPORT = Report(
    "Attention <b>",
    (
        Finding("first check", (GOOD,), (), "a cause", "a change"),
        Finding("second check", (GOOD, BAD), (), "a cause & more", "a change"),
        Finding("third check", (), ("no step was given",), "a cause", "a change"),
    ),
)


class TestReport:
    def test_as_text_is_a_table_with_cause_and_change_for_what_failed_only(self):
        assert str(REPORT).splitlines() == [
            "Attention <b>, 3 checks: 1 passed, 1 failed, 1 could not run",
            "",
            "check         result         measured  tolerance  where",
            "───────────────────────────────────────────────────────",
            "first check   passed         1e-07     ≤ 2e-05    train",
            "second check  FAILED         0.5       ≤ 0        eval",
            "third check   could not run",
            "",
            "second check: FAILED",
            "  what was measured: a leak",
            "  likely cause: a cause & more",
            "  what to change: a change",
            "",
            "could not run, so nothing is known of:",
            "  third check: no step was given",
        ]

    def test_long_texts_are_wrapped(self):
        report = Report("M", (Finding("check", (BAD,), (), "long " * 60, "c"),))
        assert max(map(len, str(report).splitlines())) <= 86
        assert str(report).count("long") == 60

    def test_in_a_notebook_is_the_whole_table_escaped(self):
        page = _Table()
        page.feed(REPORT._repr_html_())
        assert page.cells[0] == [
            "check",
            "result",
            "measured",
            "tolerance",
            "where",
            "what was measured",
            "likely cause",
            "what to change",
        ]
        assert page.cells[1] == ["first check", "passed", "1e-07", "≤ 2e-05", "train", "a figure", "a cause", "a change"]
        assert page.cells[2] == ["second check", "FAILED", "0.5", "≤ 0", "eval", "a leak", "a cause & more", "a change"]
        assert page.cells[3] == ["third check", "could not run", "", "", "", "no step was given", "", ""]
        assert not {"b", "script", "style", "link"} & page.tags

    def test_raises_what_failed_and_if_strict_what_could_not_run(self):
        with pytest.raises(AssertionError) as error:
            REPORT.raise_if_failed()
        assert (
            "second check: FAILED: a leak: 0.5 (≤ 0) in eval\n  likely cause: a cause & more\n  what to change: a change"
            in str(error.value)
        )
        assert "third" not in str(error.value)
        with pytest.raises(AssertionError, match="third check: could not run: no step was given"):
            REPORT.raise_if_failed(strict=True)
        unknown = Report("M", REPORT.findings[::2])
        unknown.raise_if_failed()
        with pytest.raises(AssertionError):
            unknown.raise_if_failed(strict=True)
        Report("M", REPORT.findings[:1]).raise_if_failed(strict=True)

    def test_gives_findings_by_name_and_in_turn(self):
        assert REPORT["third check"] is REPORT.findings[2]
        assert [finding.check for finding in REPORT] == ["first check", "second check", "third check"]
        assert [len(part) for part in (REPORT.passed, REPORT.failed, REPORT.could_not_run)] == [1, 1, 1]
        with pytest.raises(KeyError, match="no check is named 'fourth'; there are: first check, second check, third check"):
            REPORT["fourth"]

    def test_of_a_diagnosis_has_a_row_for_each_check(self):
        report = diagnose(PlainAttention(64, 2, "causal forgotten"), torch.randn(2, 8, 64), call)
        text = str(report)
        assert text.startswith("PlainAttention, 18 checks: ")
        assert all(sum(line.startswith(one.check) for line in text.splitlines()) >= 1 for one in report)


class _Table(HTMLParser):
    def __init__(self):
        super().__init__()
        self.cells, self.tags = [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_data(self, data):
        if self.cells:
            self.cells[-1][-1] += data


# Assertion -> what it needs, and a fault that it must find.
ASSERTIONS = {
    "assert_causal": ({}, "sees one step ahead"),
    "assert_ignores_padding": ({}, "padding forgotten"),
    "assert_finite_when_wholly_padded": ({}, "NaN in an empty row"),
    "assert_batch_independent": ({}, "softmax over the batch"),
    "assert_deterministic": ({}, "dropout of 0.1 in the code"),
    "assert_train_equals_eval": ({}, "causal in training only"),
    "assert_inputs_untouched": ({}, "input written over"),
    "assert_order": ({"positional": False}, "heads joined by a reshape"),
    "assert_heads_keep_positions": ({"causal": True}, "heads split by a reshape"),
    "assert_steps_equal_full_pass": ({"step": step}, "cached step sees key 0 alone"),
    "assert_half_precision": ({}, "minus 1e9"),
    "assert_long_input": ({}, "table of 64 positions"),
    "assert_sane_scores": ({}, "scale forgotten"),
    "assert_not_collapsed": ({"causal": True}, "heads are copies"),
    "assert_gradients_reach_projections": ({}, "queries detached"),
}


class TestAssertions:
    @pytest.mark.parametrize("name", ASSERTIONS)
    def test_each_passes_a_sound_module_and_finds_its_fault(self, name):
        (options, fault), x = ASSERTIONS[name], torch.randn(2, 8, 64)
        causal = name != "assert_order"
        check = getattr(diagnostics, name)
        check(PlainAttention(64, 2, causal=causal), x, call, **options)
        with pytest.raises(AssertionError, match=r"(?s)PlainAttention.*FAILED.*likely cause.*what to change"):
            check(PlainAttention(64, 2, fault, causal=causal, dropout=0.1), x, call, **options)

    def test_all_are_listed_and_together_run_every_check(self, monkeypatch):
        assert {name for name in diagnostics.__all__ if name.startswith("assert_")} == ASSERTIONS.keys()
        ran = []
        monkeypatch.setattr(diagnostics.assertions, "carry_out", lambda chosen, probe: ran.extend(chosen) or ())
        for name, (options, _) in ASSERTIONS.items():
            getattr(diagnostics, name)(PlainAttention(64, 2), torch.randn(2, 8, 64), call, **options)
        assert {check.name for check in ran} == {check.name for check in diagnostics.catalog.CHECKS}

    def test_one_that_cannot_run_fails(self):
        x = torch.randn(2, 8, 64)
        with pytest.raises(AssertionError, match="could not run: `call` does not take `keep`"):
            diagnostics.assert_ignores_padding(PlainAttention(64, 2), x, lambda m, x: m(x))
        with pytest.raises(AssertionError, match=f"{checks.ORDER}: could not run: a causal mask shows the order"):
            diagnostics.assert_order(PlainAttention(64, 2), x, call, positional=False, causal=True)

    def test_names_only_what_it_was_asked(self):
        with pytest.raises(AssertionError) as error:
            diagnostics.assert_causal(PlainAttention(64, 2, "mask after the softmax"), torch.randn(2, 8, 64), call)
        assert checks.FUTURE in str(error.value)
        assert checks.CONTENT not in str(error.value)
        assert checks.STEPS not in str(error.value)
