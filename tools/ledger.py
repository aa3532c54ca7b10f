"""Bring the ledger of claims up to date with the verdicts that the chapters print.

    python tools/ledger.py            rewrite the verdict and figures of each row of chapters/claims.md
    python tools/ledger.py --check    change nothing: print what is out of step and exit with 1

Prose, ids and claims of the ledger are written by hand. The last two columns of its tables come from the chapters' stored
outputs, where `lib.study.verdicts.verdict` printed lines such as `A14 · holds · every row sums to 1`. A row belongs to the
chapter that is linked above its table. The rules that `problems` keeps are the book's promise: each claim has its section and
one verdict, which the test of the chapters compares and which no one has written by hand.
"""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode, v4

LEDGER = Path(__file__).resolve().parent.parent / "chapters" / "claims.md"

CHAPTER = re.compile(r"\]\((\w+\.ipynb)\)")
CELL = r" *((?:\\.|[^|\\])*?) *\|"  # up to a bar without a backslash
ROW = re.compile(rf"\| \[([A-Z]\d+)\]\(#([^)]*)\) \|{CELL}{CELL}{CELL}")
VERDICT = re.compile(r"([A-Z]\d+) · (holds|holds when|does not hold here) · (.+)")
TARGET = re.compile(r"^\(claim-([A-Za-z]\d+)\)=$", re.MULTILINE)
MARKDOWN_SIGNS = r"([\\`*_\[\]<$|~{}])"

RENEW = "run python tools/ledger.py"


@dataclass(frozen=True)
class Row:
    """One claim of the ledger, as its line says it."""

    chapter: str
    id: str
    target: str
    claim: str
    word: str
    figures: str

    def __str__(self) -> str:
        return f"| [{self.id}](#{self.target}) | {self.claim} | {self.word} | {self.figures} |"


@dataclass(frozen=True)
class Verdict:
    """One verdict as printed, and the index of the cell that printed it."""

    id: str
    word: str
    sentence: str
    cell: int

    @property
    def figures(self) -> str:
        """The sentence as Markdown that shows just that, also inside a table."""
        return re.sub(MARKDOWN_SIGNS, r"\\\1", self.sentence)


def rows(text: str) -> list[tuple[int, Row]]:
    """The ledger's rows with the index of their line."""
    found, chapter = [], ""
    for number, line in enumerate(text.splitlines()):
        if row := ROW.fullmatch(line):
            found.append((number, Row(chapter, *row.groups())))
        elif link := CHAPTER.search(line):
            chapter = link[1]
    return found


def verdicts(notebook: NotebookNode) -> list[Verdict]:
    """The verdicts that the cells of a chapter printed, in order."""
    found = []
    for index, cell in enumerate(notebook.cells):
        printed = "".join(output.text for output in cell.get("outputs", []) if output.output_type == "stream")
        found += [Verdict(*match.groups(), index) for line in printed.splitlines() if (match := VERDICT.fullmatch(line))]
    return found


def refreshed(text: str, chapters: dict[str, NotebookNode]) -> str:
    """The ledger with each row's verdict and figures as its chapter prints them, or empty where it prints none."""
    lines = text.splitlines()
    for number, row in rows(text):
        if row.chapter in chapters:
            verdict = {found.id: found for found in verdicts(chapters[row.chapter])}.get(row.id)
            word, figures = (verdict.word, verdict.figures) if verdict else ("", "")
            lines[number] = str(Row(row.chapter, row.id, row.target, row.claim, word, figures))
    return "\n".join(lines) + "\n"


def problems(text: str, chapters: dict[str, NotebookNode]) -> list[str]:
    """Where the ledger and the chapters are out of step. `chapters` are those that the book has so far."""
    found = []
    listed = [row for _, row in rows(text)]
    for row in listed:
        if [other.id for other in listed].count(row.id) > 1:
            found.append(f"{row.id} stands in the ledger more than once; give each claim its own id")
        if row.target != f"claim-{row.id.lower()}":
            found.append(f"{row.id} links to #{row.target}; link to #claim-{row.id.lower()}")
    for letter in sorted({row.id[0] for row in listed}):
        numbers = sorted({int(row.id[1:]) for row in listed if row.id[0] == letter})
        missing = sorted(set(range(1, numbers[-1] + 1)) - set(numbers))
        found += [f"{letter}{number} is missing in the ledger; its numbers run without a gap" for number in missing]
    for name, notebook in chapters.items():
        in_chapter = {row.id: row for row in listed if row.chapter == name}
        if not in_chapter:
            found.append(f"{name} has no table in the ledger; add one below a link to it")
        found += [f"{name} {problem}" for problem in _chapter_problems(in_chapter, notebook)]
    return found


def _chapter_problems(in_ledger: dict[str, Row], notebook: NotebookNode) -> list[str]:
    """Where one chapter and its rows of the ledger are out of step."""
    found = []
    printed = verdicts(notebook)
    targets = [
        (id.upper(), index)
        for index, cell in enumerate(notebook.cells)
        if cell.cell_type == "markdown"
        for id in TARGET.findall(cell.source)
    ]
    for row in in_ledger.values():
        mine = [verdict for verdict in printed if verdict.id == row.id]
        where = [index for id, index in targets if id == row.id]
        if len(mine) != 1:
            found.append(f"prints {len(mine)} verdicts on {row.id}; measure it and call verdict({row.id!r}, …) once")
        elif (mine[0].word, mine[0].figures) != (row.word, row.figures):
            found.append(f"says of {row.id} {mine[0].word!r}, {mine[0].sentence!r}, and the ledger another thing; {RENEW}")
        if len(where) != 1:
            found.append(f"has {len(where)} targets for {row.id}; put (claim-{row.id})= above the heading of its section")
        elif mine and mine[0].cell < where[0]:
            found.append(f"prints its verdict on {row.id} above the section (claim-{row.id})=; move the target up")
    for verdict in printed:
        cell = notebook.cells[verdict.cell]
        if verdict.id not in in_ledger:
            found.append(f"prints a verdict on {verdict.id}, which is not in the chapter's table; add a row for it")
        if "nbval-ignore-output" in cell.metadata.get("tags", []):
            found.append(f"prints its verdict on {verdict.id} where nothing is compared; move it to a cell without the tag")
        if verdict.id not in _measured(cell.source):
            found.append(
                f"states {verdict.id} by hand; call verdict({verdict.id!r}, holds=…) with a condition that was measured"
            )
    return found


def _measured(source: str) -> set[str]:
    """The claims on which a cell calls `verdict` with a condition other than a plain constant."""
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except SyntaxError:  # IPython's own commands: such a cell states no verdict
        return set()
    return {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name)
        and call.func.id == "verdict"
        and call.args
        and isinstance(call.args[0], ast.Constant)
        if any(word.arg == "holds" and not isinstance(word.value, ast.Constant) for word in call.keywords)
    }


def read_chapters(folder: Path) -> dict[str, NotebookNode]:
    """The notebooks of a folder, by file name."""
    return {path.name: v4.reads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.ipynb"))}


def main(arguments: list[str]) -> int:
    """The command line. Returns the exit status: 0, or 1 when `--check` finds something."""
    text, chapters = LEDGER.read_text(encoding="utf-8"), read_chapters(LEDGER.parent)
    if arguments == ["--check"]:
        found = problems(text, chapters)
        print("\n".join(found) or "the ledger and the chapters agree")
        return int(bool(found))
    if arguments:
        print("usage: python tools/ledger.py [--check]")
        return 2
    new = refreshed(text, chapters)
    if new != text:
        LEDGER.write_text(new, encoding="utf-8")
    print(f"{LEDGER.name}: {'unchanged' if new == text else 'written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
