"""The ledger of claims and the chapters agree, and no verdict is written by hand.

The convention, for every chapter:

- Each claim is measured in a section of its own, marked by the line `(claim-A5)=` above its heading (or admonition).
- Below it one code cell, without the tag `nbval-ignore-output`, states the verdict with `lib.study.verdicts.verdict`:

      verdict("A5", holds=error < 1e-6, yes="the coldest blend equals the lookup", no="the coldest blend misses the lookup")

  `holds=` is a condition that was measured, never a plain `True`. The cell prints `A5 · holds · the coldest blend …`, or
  `A5 · does not hold here · …`, or with `when=True` `A5 · holds when · …`; strict nbval compares that line.
- `chapters/claims.md` has one table for each chapter, below a link to it, with the columns id, claim, verdict, in figures. The
  id links to the section, `[A5](#claim-a5)` (Sphinx writes labels in small letters). Ids run without gaps: A1, A2, A3, …
- `python tools/ledger.py` fills the last two columns from the chapters' outputs; `make notebooks` does so at its end.

The chapters are those of `_toc.yml`.
"""

import re
from pathlib import Path

import ledger
import pytest
from nbformat import NotebookNode, v4

from lib.study.verdicts import verdict

ROOT = Path(__file__).resolve().parents[2]

LEDGER = r"""# The ledger

Prose with a [link](https://example.org).

Measured in [Self-attention](self_attention.ipynb).

| id | claim | verdict | in figures |
|---|---|---|---|
| [A1](#claim-a1) | One step apart. | holds | 1 step against n \| 2 |
| [A2](#claim-a2) | A set, `x` and all. | does not hold here | d\_k \* 2 · 3 |

And [Masks](masks.ipynb):

| id | claim | verdict | in figures |
|---|---|---|---|
| [M1](#claim-m1) | Nothing leaks. | holds when | the mask is −∞ |
"""


def cell(*claims: str, **metadata) -> NotebookNode:
    """A code cell that states verdicts, given as the lines that it printed."""
    source = "\n".join(f"verdict({line.split(' · ')[0]!r}, holds=error < bound, yes='…', no='…')" for line in claims)
    printed = v4.new_output("stream", name="stdout", text="".join(f"{line}\n" for line in claims))
    return v4.new_code_cell(source, metadata=metadata, outputs=[printed])


def chapters() -> dict[str, NotebookNode]:
    """Two chapters that agree with `LEDGER`. The planted faults name their cells by position."""
    attention = [
        v4.new_markdown_cell("# Self-attention"),
        v4.new_markdown_cell("(claim-A1)=\n## One step"),
        cell("A1 · holds · 1 step against n | 2"),
        v4.new_markdown_cell("Some prose.\n\n(claim-A2)=\n## A set"),
        cell("A2 · does not hold here · d_k * 2 · 3"),
    ]
    masks = [v4.new_markdown_cell("(claim-M1)=\n# Masks"), cell("M1 · holds when · the mask is −∞")]
    return {"self_attention.ipynb": v4.new_notebook(cells=attention), "masks.ipynb": v4.new_notebook(cells=masks)}


def restate(notebook: NotebookNode, index: int, line: str) -> None:
    notebook.cells[index].outputs[0].text = line + "\n"


def book() -> tuple[str, dict[str, NotebookNode]]:
    """The committed ledger and the notebooks that the table of contents lists."""
    toc = re.findall(r"file: chapters/(\w+)", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
    listed = [ROOT / "chapters" / f"{name}.ipynb" for name in toc if not (ROOT / "chapters" / f"{name}.md").exists()]
    notebooks = {path.name: v4.reads(path.read_text(encoding="utf-8")) for path in listed}
    return ledger.LEDGER.read_text(encoding="utf-8"), notebooks


def test_the_committed_ledger_and_chapters_agree():
    text, notebooks = book()
    assert notebooks
    assert ledger.problems(text, notebooks) == []


def test_a_ledger_in_step_has_no_problems_and_stays_as_it_is():
    assert ledger.problems(LEDGER, chapters()) == []
    assert ledger.refreshed(LEDGER, chapters()) == LEDGER


def test_refreshing_fills_verdict_and_figures_alone():
    emptied = LEDGER.replace("| holds | 1 step against n \\| 2 |", "|  |  |").replace(
        "| holds when | the mask", "| holds | a mask"
    )
    assert ledger.refreshed(emptied, chapters()) == LEDGER
    silent = chapters()
    silent["masks.ipynb"].cells[1].outputs = []
    assert ledger.refreshed(LEDGER, silent) == LEDGER.replace("| holds when | the mask is −∞ |", "|  |  |")


def test_what_verdict_prints_is_what_the_ledger_reads(capsys):
    verdict("A1", holds=True, yes="1 step against n | 2", no="more")
    verdict("A2", holds=False, yes="less", no="d_k * 2 · 3")
    verdict("M1", holds=True, when=True, yes="the mask is −∞", no="never")
    printed = v4.new_output("stream", name="stdout", text="before\n" + capsys.readouterr().out + "A3 · maybe · unclear\n")
    read = ledger.verdicts(v4.new_notebook(cells=[v4.new_code_cell("", outputs=[printed])]))
    rows = [row for _, row in ledger.rows(LEDGER)]
    assert [(found.id, found.word, found.figures) for found in read] == [(row.id, row.word, row.figures) for row in rows]


# What is planted in the chapters → what must be found.
CHAPTER_FAULTS = {
    "another verdict": (
        lambda attention: restate(attention, 2, "A1 · holds when · 1 step against n | 2"),
        "self_attention.ipynb says of A1 'holds when', '1 step against n | 2', and the ledger another thing; run",
    ),
    "another figure": (
        lambda attention: restate(attention, 2, "A1 · holds · 2 steps"),
        "self_attention.ipynb says of A1 'holds', '2 steps', and the ledger another thing; run python tools/ledger.py",
    ),
    "no verdict": (
        lambda attention: attention.cells[4].update(outputs=[]),
        "self_attention.ipynb prints 0 verdicts on A2; measure it and call verdict('A2', …) once",
    ),
    "two verdicts": (
        lambda attention: attention.cells.append(attention.cells[4]),
        "self_attention.ipynb prints 2 verdicts on A2; measure it",
    ),
    "a verdict without a row": (
        lambda attention: attention.cells.append(cell("A3 · holds · 3")),
        "self_attention.ipynb prints a verdict on A3, which is not in the chapter's table; add a row",
    ),
    "no target": (
        lambda attention: attention.cells[1].update(source="## One step"),
        "self_attention.ipynb has 0 targets for A1; put (claim-A1)= above the heading of its section",
    ),
    "target inside a line": (
        lambda attention: attention.cells[1].update(source="see (claim-A1)="),
        "self_attention.ipynb has 0 targets for A1; put",
    ),
    "two targets": (
        lambda attention: attention.cells[0].update(source="(claim-A1)=\n# Self-attention"),
        "self_attention.ipynb has 2 targets for A1; put",
    ),
    "verdict above its section": (
        lambda attention: attention.cells.insert(0, attention.cells.pop(2)),
        "self_attention.ipynb prints its verdict on A1 above the section (claim-A1)=; move the target up",
    ),
    "nothing compared": (
        lambda attention: attention.cells[2].metadata.update(tags=["nbval-ignore-output"]),
        "self_attention.ipynb prints its verdict on A1 where nothing is compared; move it",
    ),
    "printed by hand": (
        lambda attention: attention.cells[2].update(source="print('A1 · holds · 1 step against n | 2')"),
        "self_attention.ipynb states A1 by hand; call verdict('A1', holds=…) with a condition that was measured",
    ),
    "a constant for a condition": (
        lambda attention: attention.cells[2].update(source="verdict('A1', holds=True, yes='…', no='…')"),
        "self_attention.ipynb states A1 by hand; call",
    ),
    "an IPython command": (
        lambda attention: attention.cells[2].update(source="!cat a1"),
        "self_attention.ipynb states A1 by hand; call",
    ),
}

# The same for the ledger: a text and its replacement.
LEDGER_FAULTS = {
    "a claim twice": (
        "[M1](#claim-m1)",
        "[A1](#claim-a1)",
        "A1 stands in the ledger more than once; give each claim its own id",
    ),
    "a link that leads nowhere": ("(#claim-a2)", "(#claim-a20)", "A2 links to #claim-a20; link to #claim-a2"),
    "a gap": ("[A1](#claim-a1)", "[A3](#claim-a3)", "A1 is missing in the ledger; its numbers run without a gap"),
    "a verdict edited by hand": (
        "does not hold here",
        "holds",
        "self_attention.ipynb says of A2 'does not hold here', 'd_k * 2 · 3', and",
    ),
    "figures edited by hand": (
        "−∞",
        "-inf",
        "masks.ipynb says of M1 'holds when', 'the mask is −∞', and the ledger another thing; run",
    ),
    "a row taken out": (
        "| [A2](#claim-a2) | A set, `x` and all. | does not hold here | d\\_k \\* 2 · 3 |\n",
        "",
        "self_attention.ipynb prints a verdict on A2, which is not in the chapter's table; add a row for it",
    ),
    "a chapter without a table": (
        "(masks.ipynb)",
        "(mask.ipynb)",
        "masks.ipynb has no table in the ledger; add one below a link to it",
    ),
}


@pytest.mark.parametrize(("plant", "expected"), CHAPTER_FAULTS.values(), ids=CHAPTER_FAULTS)
def test_a_chapter_out_of_step_is_found(plant, expected):
    planted = chapters()
    plant(planted["self_attention.ipynb"])
    assert any(problem.startswith(expected) for problem in ledger.problems(LEDGER, planted))


@pytest.mark.parametrize(("old", "new", "expected"), LEDGER_FAULTS.values(), ids=LEDGER_FAULTS)
def test_a_ledger_out_of_step_is_found(old, new, expected):
    assert old in LEDGER
    assert any(problem.startswith(expected) for problem in ledger.problems(LEDGER.replace(old, new), chapters()))


def test_the_command_renews_the_ledger_and_its_check_changes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ledger, "LEDGER", tmp_path / "claims.md")
    stale = LEDGER.replace("| holds | 1", "| holds when | 7")
    ledger.LEDGER.write_text(stale, encoding="utf-8")
    for name, notebook in chapters().items():
        (tmp_path / name).write_text(v4.writes(notebook), encoding="utf-8")
    assert ledger.main(["--check"]) == 1
    assert ledger.LEDGER.read_text(encoding="utf-8") == stale
    assert ledger.main([]) == 0
    assert ledger.LEDGER.read_text(encoding="utf-8") == LEDGER
    assert ledger.main(["--check"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["claims.md: written", "the ledger and the chapters agree"]
