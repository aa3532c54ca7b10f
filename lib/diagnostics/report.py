"""What a diagnosis says: one finding for each check, with the figures that were measured, as text and as a table of HTML."""

import html
import math
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import fill

PASSED, FAILED, COULD_NOT_RUN = "passed", "FAILED", "could not run"
COLUMNS = ("check", "result", "measured", "tolerance", "where", "what was measured", "likely cause", "what to change")


@dataclass(frozen=True)
class Measurement:
    """One figure and what it was held against.

    Args:
        what: what the figure is.
        where: in which mode it was measured: train or eval, with or without gradients.
        value: the figure. An error between two outputs is relative: the largest difference over the largest magnitude. What is
            not finite counts as infinite.
        tolerance: the bound that it was held against.
        at_least: whether the bound is one from below.
    """

    what: str
    where: str
    value: float
    tolerance: float
    at_least: bool = False

    @property
    def passed(self) -> bool:
        """Whether the figure keeps its bound. NaN never does."""
        return self.value >= self.tolerance if self.at_least else self.value <= self.tolerance

    @property
    def excess(self) -> float:
        """How far the figure has gone towards its bound and beyond: above 1 it failed."""
        value, bound = (self.tolerance, self.value) if self.at_least else (self.value, self.tolerance)
        if math.isnan(value) or math.isnan(bound):
            return math.inf
        return value / bound if bound else (math.inf if value > 0 else 0.0)

    @property
    def bound(self) -> str:
        """The tolerance as a bound from above or below."""
        return f"{'≥' if self.at_least else '≤'} {self.tolerance:.2g}"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Args:
        check: its name.
        measurements: every figure, of every mode.
        reasons: why it could not run, or not in some mode; empty if it ran everywhere.
        cause: what is likely wrong, if it failed.
        change: what to do about it, if it failed.
    """

    check: str
    measurements: tuple[Measurement, ...] = ()
    reasons: tuple[str, ...] = ()
    cause: str = ""
    change: str = ""

    @property
    def result(self) -> str:
        """`PASSED`, `FAILED` or `COULD_NOT_RUN`. One bad figure is a failure; a mode that could not run is no pass."""
        if not all(one.passed for one in self.measurements):
            return FAILED
        return PASSED if self.measurements and not self.reasons else COULD_NOT_RUN

    @property
    def worst(self) -> Measurement | None:
        """The figure that is nearest to its bound, or farthest beyond it."""
        return max(self.measurements, key=lambda one: (not one.passed, one.excess), default=None)

    @property
    def cells(self) -> tuple[str, ...]:
        """The finding as a row of the table, in the order of `COLUMNS`."""
        if self.result == COULD_NOT_RUN:
            return self.check, self.result, "", "", "", "; ".join(self.reasons), "", ""
        worst = self.worst
        return self.check, self.result, f"{worst.value:.3g}", worst.bound, worst.where, worst.what, self.cause, self.change

    def __str__(self) -> str:
        check, result, value, bound, where, what, cause, change = self.cells
        if result == COULD_NOT_RUN:
            return f"{check}: {result}: {what}"
        text = f"{check}: {result}: {what}: {value} ({bound}) in {where}"
        return f"{text}\n  likely cause: {cause}\n  what to change: {change}" if result == FAILED else text


@dataclass(frozen=True)
class Report:
    """All findings of a diagnosis. `print` it, or let a notebook show it.

    Args:
        subject: name of the module's class.
        findings: one for each check.
    """

    subject: str
    findings: tuple[Finding, ...]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, check: str) -> Finding:
        """The finding of a check, by its name."""
        for finding in self.findings:
            if finding.check == check:
                return finding
        raise KeyError(f"no check is named {check!r}; there are: {', '.join(one.check for one in self.findings)}.")

    def _with(self, result: str) -> list[Finding]:
        return [one for one in self.findings if one.result == result]

    @property
    def passed(self) -> list[Finding]:
        """Findings that ran in every mode and kept every bound."""
        return self._with(PASSED)

    @property
    def failed(self) -> list[Finding]:
        """Findings with a figure beyond its bound."""
        return self._with(FAILED)

    @property
    def could_not_run(self) -> list[Finding]:
        """Findings that say nothing, and why."""
        return self._with(COULD_NOT_RUN)

    def raise_if_failed(self, *, strict: bool = False) -> None:
        """For a test suite.

        Args:
            strict: whether a check that could not run counts as a failure.

        Raises:
            AssertionError: the findings, each with its cause and what to change.
        """
        bad = self.failed + (self.could_not_run if strict else [])
        if bad:
            raise AssertionError(f"{self.summary}\n" + "\n".join(map(str, bad)))

    @property
    def summary(self) -> str:
        """How many checks passed, failed and could not run, in one line."""
        counts = f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.could_not_run)} could not run"
        return f"{self.subject}, {len(self.findings)} checks: {counts}"

    def __str__(self) -> str:
        rows = [COLUMNS[:5], *[finding.cells[:5] for finding in self.findings]]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines = [self.summary, "", table[0], "─" * max(map(len, table)), *table[1:]]
        for finding in self.failed:
            *_, what, cause, change = finding.cells
            lines += ["", f"{finding.check}: {FAILED}"]
            lines += [_item(title, text) for title, text in zip(COLUMNS[5:], (what, cause, change), strict=True)]
        if self.could_not_run:
            lines += ["", "could not run, so nothing is known of:"]
            lines += [_item(finding.check, finding.cells[5]) for finding in self.could_not_run]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The whole table, for notebooks. No script, no style sheet, nothing loaded."""
        head = "".join(f'<th scope="col">{title}</th>' for title in COLUMNS)
        rows = []
        for finding in self.findings:
            check, *cells = map(html.escape, finding.cells)
            if finding.result != PASSED:
                cells[0] = f"<strong>{cells[0]}</strong>"
            rows.append(f'<tr><th scope="row">{check}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        caption = f"<caption>{html.escape(self.summary)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _item(title: str, text: str) -> str:
    return fill(f"{title}: {text}", width=86, initial_indent="  ", subsequent_indent="      ", break_long_words=False)
