"""The rules that a committed notebook keeps, so that it reads well as a page, runs anywhere and differs only where it should.

Each rule takes a notebook and yields pairs: the index of a cell (None: the whole notebook), and what is wrong with its remedy.
"""

import json
import re
from collections.abc import Iterator

import nbformat
from nbformat import NotebookNode

ALLOWED_TAGS = {
    "nbval-ignore-output": "the output is timed or trained; the test runs the cell without comparing it",
    "raises-exception": "the cell shows an error on purpose",
    "hide-input": "the code is folded: a drawing, a widget, a check",
    "hide-output": "the output is folded",
    "hide-cell": "code and output are folded: a solution",
    "remove-input": "the page shows the output alone",
    "remove-output": "the page shows the code alone",
    "remove-cell": "the page shows nothing: set-up that a reader need not see",
}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
NOTEBOOK_BYTES = 2_000_000
HTML_BYTES = 400_000
PICTURES = ("image/png", "image/jpeg", "image/svg+xml")

RUN = "run python tools/notebooks.py"
CLEAN = "run python tools/notebooks.py --clean"

# Folders of one machine. A letter or a dot in front means a path of a site or of this project.
MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:home|root|work|tmp|Users|opt|usr|mnt|var|private)/\w|\b[A-Za-z]:\\+Users|site-packages|ipykernel_\d"
)
EMBEDDED = re.compile(r"[A-Za-z0-9+/=]{200,}")  # pictures in base64, where any letters can stand
FIGURE_REPR = re.compile(r"\(?\[?\(?<(?:Figure|Axes|matplotlib)|Text\(|array\(\[+<Axes|\[?<BarContainer")
IMG_WITHOUT_ALT = re.compile(r"""<img\b(?![^>]*\balt\s*=\s*("[^"]*[^"\s]|'[^']*[^'\s]|[^\s"'>]))[^>]*>""", re.IGNORECASE)
MARKDOWN_IMAGE = re.compile(r"!\[\s*\]\([^)]+\)")
DIRECTIVE_IMAGE = re.compile(r"^(`{3,}|:{3,})\{(?:image|figure)\}(.*?)^\1", re.MULTILINE | re.DOTALL)

Findings = Iterator[tuple[int | None, str]]


def place(notebook: NotebookNode, index: int | None) -> str:
    """Where a finding is: the cell's position, counted from 1 over all cells, and its id."""
    return "" if index is None else f"cell {index + 1} ({notebook.cells[index].get('id', 'no id')})"


def _code(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    return ((index, cell) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code")


def _outputs(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode, NotebookNode]]:
    return ((index, cell, output) for index, cell in _code(notebook) for output in cell.outputs)


def _tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def ids(notebook: NotebookNode) -> Findings:
    """Every cell has an id of its own: links, reviews and merges go by it."""
    seen = {}
    for index, cell in enumerate(notebook.cells):
        if "id" not in cell:
            yield index, f"no cell id; {CLEAN}"
        elif cell.id in seen:
            yield index, f"the same id as cell {seen[cell.id] + 1}; {CLEAN}"
        else:
            seen[cell.id] = index


def schema(notebook: NotebookNode) -> Findings:
    """The file is a notebook of the published format."""
    if not all("id" in cell for cell in notebook.cells):
        return  # said by `ids`
    for error in nbformat.validator.iter_validate(notebook, relax_add_props=True):
        yield None, f"not a valid notebook: {error.message.splitlines()[0][:120]}; open it in JupyterLab and save it"


def kernel(notebook: NotebookNode) -> Findings:
    """The kernel is everybody's Python 3, whatever its author called it; no version of one machine."""
    name = notebook.metadata.get("kernelspec", {}).get("name")
    if name != "python3":
        yield None, f"the kernel is {name!r} instead of 'python3'; {CLEAN}"
    if "version" in notebook.metadata.get("language_info", {}):
        yield None, f"it names the Python version of one machine; {CLEAN}"


def execution_counts(notebook: NotebookNode) -> Findings:
    """Every code cell ran, from top to bottom in one go."""
    for number, (index, cell) in enumerate(_code(notebook), 1):
        if cell.get("execution_count") is None:
            yield index, f"it never ran; {RUN}"
        elif cell.execution_count != number:
            yield index, f"execution count {cell.execution_count} instead of {number}; {RUN}"


def tags(notebook: NotebookNode) -> Findings:
    """Only tags whose meaning is written down, and no comment that does a tag's work in the reader's sight."""
    for index, cell in enumerate(notebook.cells):
        for tag in _tags(cell):
            if tag not in ALLOWED_TAGS:
                yield (
                    index,
                    f"the tag {tag!r} is not in use; take one of {', '.join(ALLOWED_TAGS)}, or add it to tools/hygiene.py",
                )
        if re.search(r"^\s*#+\s*(NBVAL_|PYTEST_VALIDATE)", cell.source, re.MULTILINE):
            yield index, "a comment steers the test; use the tag nbval-ignore-output or raises-exception"


def errors(notebook: NotebookNode) -> Findings:
    """No error is shown by accident (a widget's callback prints one without failing the cell), and none is promised in vain."""
    for index, cell in _code(notebook):
        shown = [output for output in cell.outputs if output.output_type == "error"]
        meant = "raises-exception" in _tags(cell)
        if shown and not meant:
            yield index, f"{shown[0].ename}: {shown[0].evalue}; mend the cell, or tag it raises-exception"
        elif meant and not shown and cell.get("execution_count"):
            yield index, "tagged raises-exception but nothing was raised; drop the tag"


def stderr(notebook: NotebookNode) -> Findings:
    """Warnings are mended, not shown."""
    for index, _, output in _outputs(notebook):
        if output.output_type == "stream" and output.name == "stderr":
            yield index, f"output on stderr ({output.text.strip()[:60]!r}); mend its cause, then {RUN}"


def machine_paths(notebook: NotebookNode) -> Findings:
    """Nothing names a folder of the machine it ran on."""
    for index, cell in enumerate(notebook.cells):
        texts = [("source", cell.source)]
        for output in cell.get("outputs", []):
            texts += [("output", text) for text in _texts(output)]
        for part, text in texts:
            if found := MACHINE_PATH.search(EMBEDDED.sub("", text)):
                start = found.start()
                yield (
                    index,
                    f"a path of one machine in its {part} ({text[start : start + 40]!r}); write it relative to the notebook",
                )
                break


def _texts(output: NotebookNode) -> Iterator[str]:
    """All that is text in one output, in whatever kind it is shown."""
    if output.output_type == "stream":
        yield output.text
    elif output.output_type == "error":
        yield from [output.evalue, *output.traceback]
    else:
        for kind, data in output.data.items():
            if kind not in ("image/png", "image/jpeg"):
                yield data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def sizes(notebook: NotebookNode) -> Findings:
    """An explorer's page face stays light; the notebook's own size is looked at in `findings`."""
    for index, _, output in _outputs(notebook):
        size = len(output.get("data", {}).get("text/html", "").encode())
        if size > HTML_BYTES:
            yield index, f"{size / 1000:.0f} kB of HTML, over {HTML_BYTES // 1000} kB; use fewer frames, or smaller ones"


def alt_text(notebook: NotebookNode) -> Findings:
    """Every picture that the page shows can be heard as well as seen."""
    for index, cell in enumerate(notebook.cells):
        described = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "").strip()
        shown = [] if {"remove-output", "remove-cell"} & set(_tags(cell)) else cell.get("outputs", [])
        for data in (output.get("data", {}) for output in shown):
            html = data.get("text/html", "")
            if not html and not described and any(kind in data for kind in PICTURES):
                yield index, 'a picture without alt text; add {"mystnb": {"image": {"alt": "…"}}} to the cell\'s metadata'
            if IMG_WITHOUT_ALT.search(html):
                yield index, 'an <img> without alt text in its HTML; add alt="…"'
        if cell.cell_type == "markdown" and _undescribed(cell.source):
            yield index, "an image without alt text in its Markdown; write ![what it shows](file) or :alt: what it shows"


def _undescribed(markdown: str) -> bool:
    directives = (found[2] for found in DIRECTIVE_IMAGE.finditer(markdown))
    return bool(
        MARKDOWN_IMAGE.search(markdown)
        or IMG_WITHOUT_ALT.search(markdown)
        or any(not re.search(r"^\s*:alt:\s*\S", body, re.MULTILINE) for body in directives)
    )


def plots(notebook: NotebookNode) -> Findings:
    """A plotting cell ends with plt.show(). nbval runs cells without a history, where a trailing semicolon silences nothing."""
    for index, cell in _code(notebook):
        if cell.source.rstrip().endswith(";"):
            yield index, "a trailing semicolon; end a plotting cell with plt.show()"
        for output in cell.outputs:
            text = output.get("data", {}).get("text/plain", "")
            if output.output_type == "execute_result" and FIGURE_REPR.match(text):
                yield index, f"it shows {text[:40]!r}; end a plotting cell with plt.show()"


def widgets(notebook: NotebookNode) -> Findings:
    """No widget lives in the file, each has a face for the page, and no progress bar is left over."""
    if "widgets" in notebook.metadata:
        yield None, f"it holds the widgets' state; {CLEAN}"
    for index, _, output in _outputs(notebook):
        data = output.get("data", {})
        if WIDGET_VIEW in data:
            yield index, f"it holds a widget's view; {CLEAN}"
        faceless = "text/html" not in data and not any(kind in data for kind in PICTURES)
        if faceless and re.match(r"\w+\((children=|value=|.*\bchildren=\()", data.get("text/plain", "")):
            yield index, "a widget that the page cannot show; use an explorer, which has an HTML face"
        if re.search(r"\d%\|", data.get("text/plain", output.get("text", ""))):
            yield index, f"a progress bar; use tqdm.tqdm, which this tool turns off, and {RUN}"


RULES = (ids, schema, kernel, execution_counts, tags, errors, stderr, machine_paths, sizes, alt_text, plots, widgets)


def findings(notebook: NotebookNode, content: bytes) -> Findings:
    """All that is wrong with a notebook, rule by rule. `content` is the file it was read from."""
    if len(content) > NOTEBOOK_BYTES:
        megabytes = len(content) / 1e6
        yield None, f"{megabytes:.1f} MB, over {NOTEBOOK_BYTES // 1_000_000} MB; use fewer or smaller pictures"
    for rule in RULES:
        yield from rule(notebook)
