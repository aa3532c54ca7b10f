"""The committed notebooks keep the rules of `tools/hygiene.py`, and the tools that say so can be trusted.

Every rule is proven by a fault planted in a small notebook, which must be found with its place and remedy. Renewing outputs
is proven to be repeatable to the byte and never to harm a file; strict nbval is proven to catch what it should.
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import notebooks
import pytest
from nbformat import NotebookNode, v4

ROOT = Path(__file__).resolve().parents[2]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==\n"
OTHER_PNG = PNG.replace("mNk", "mNg")
ALT = {"mystnb": {"image": {"alt": "A line that rises from 1 to 3"}}}


def markdown(id: str, source: str) -> NotebookNode:
    return v4.new_markdown_cell(source, id=id)


def code(id: str, source: str, *outputs: NotebookNode, tags: tuple[str, ...] = (), **metadata) -> NotebookNode:
    metadata = metadata | ({"tags": list(tags)} if tags else {})
    return v4.new_code_cell(source, id=id, outputs=list(outputs), metadata=metadata, execution_count=1)


def stream(text: str, name: str = "stdout") -> NotebookNode:
    return v4.new_output("stream", name=name, text=text)


def shown(output_type: str = "display_data", **data: str) -> NotebookNode:
    """`text_plain="…"` stands for the kind text/plain."""
    return v4.new_output(output_type, data={kind.replace("_", "/", 1): text for kind, text in data.items()})


def sound() -> NotebookNode:
    """A clean notebook with one cell of each kind. The planted faults name its cells by their index."""
    cells = [
        markdown("title", "# Title\n\n![A drawn queue](queue.png)"),
        code("print", "print(1)\nprint(2)", stream("1\n2\n")),
        code(
            "plot", "plt.plot([1, 3])\nplt.show()", shown(image_png=PNG, text_plain="<Figure size 640x480 with 1 Axes>"), **ALT
        ),
        code("explorer", "explorer", shown("execute_result", text_html='<img alt="θ = 1">', text_plain="Explorer(θ=1)")),
        code("raises", "1 / 0", v4.new_output("error", ename="ZeroDivisionError", evalue="zero"), tags=("raises-exception",)),
        code("timed", "print(seconds)", stream("0.1\n"), tags=("nbval-ignore-output",)),
    ]
    return notebooks.clean(v4.new_notebook(cells=cells))


def write(path: Path, notebook: NotebookNode) -> bytes:
    path.write_text(v4.writes(notebook) + "\n", encoding="utf-8")
    return path.read_bytes()


# What is planted → what must be found. A fault changes a sound notebook in place.
FAULTS = {
    "no id": (lambda nb: nb.cells[1].pop("id"), "cell 2 (no id): no cell id; run python tools/notebooks.py --clean"),
    "id twice": (lambda nb: nb.cells[2].update(id="print"), "cell 3 (print): the same id as cell 2; run"),
    "broken schema": (lambda nb: nb.cells[1].update(id="a b"), "not a valid notebook: 'a b' does not match"),
    "kernel": (lambda nb: nb.metadata.kernelspec.update(name="my-env"), "the kernel is 'my-env' instead of 'python3'; run"),
    "version": (
        lambda nb: nb.metadata.language_info.update(version="3.11.7"),
        "it names the Python version of one machine; run",
    ),
    "never run": (lambda nb: nb.cells[2].update(execution_count=None), "cell 3 (plot): it never ran; run"),
    "run out of order": (
        lambda nb: nb.cells[3].update(execution_count=9),
        "cell 4 (explorer): execution count 9 instead of 3; run",
    ),
    "tag": (
        lambda nb: nb.cells[1].metadata.update(tags=["nbval-skip"]),
        "cell 2 (print): the tag 'nbval-skip' is not in use; take",
    ),
    "comment": (
        lambda nb: nb.cells[1].update(source="# NBVAL_SKIP\n1"),
        "cell 2 (print): a comment steers the test; use the tag",
    ),
    "error": (
        lambda nb: nb.cells[1].outputs.append(v4.new_output("error", ename="KeyError", evalue="'x'")),
        "cell 2 (print): KeyError: 'x'; mend the cell, or tag it",
    ),
    "error in vain": (
        lambda nb: nb.cells[4].update(outputs=[]),
        "cell 5 (raises): tagged raises-exception but nothing was raised; drop",
    ),
    "stderr": (
        lambda nb: nb.cells[5].outputs.append(stream("UserWarning: slow\n", "stderr")),
        "cell 6 (timed): output on stderr ('UserWarning: slow'); mend its cause",
    ),
    "path in Markdown": (
        lambda nb: nb.cells[0].update(source="![A queue](/home/ada/queue.png)"),
        "cell 1 (title): a path of one machine in its source ('/home/ada/queue.png)'); write it relative",
    ),
    "path in code": (
        lambda nb: nb.cells[1].update(source='open("/tmp/x")'),
        "cell 2 (print): a path of one machine in its source ('/tmp/x\")'); write",
    ),
    "path in a stream": (
        lambda nb: nb.cells[1].outputs[0].update(text="at file:///root/x\n"),
        "cell 2 (print): a path of one machine in its output ('/root/x\\n'); write",
    ),
    "path in HTML": (
        lambda nb: nb.cells[3].outputs[0].data.update({"text/html": "C:\\Users\\ada"}),
        "cell 4 (explorer): a path of one machine in its output ('C:\\\\Users\\\\ada'); write",
    ),
    "path in an error": (
        lambda nb: nb.cells[4].outputs[0].update(evalue="lib/python3.11/site-packages/torch"),
        "cell 5 (raises): a path of one machine in its output ('site-packages/torch'); write",
    ),
    "heavy notebook": (
        lambda nb: nb.cells[2].outputs[0].data.update({"image/png": "A" * 2_000_001}),
        "2.0 MB, over 2 MB; use fewer or smaller pictures",
    ),
    "heavy explorer": (
        lambda nb: nb.cells[3].outputs[0].data.update({"text/html": "θ" * 200_001}),
        "cell 4 (explorer): 400 kB of HTML, over 400 kB; use fewer frames",
    ),
    "no alt text": (lambda nb: nb.cells[2].metadata.clear(), "cell 3 (plot): a picture without alt text; add"),
    "blank alt text": (
        lambda nb: nb.cells[2].metadata.mystnb.image.update(alt=" "),
        "cell 3 (plot): a picture without alt text; add",
    ),
    "HTML image without alt": (
        lambda nb: nb.cells[3].outputs[0].data.update({"text/html": "<p>alt=</p><img src='x.png'><img alt='y'>"}),
        "cell 4 (explorer): an <img> without alt text in its HTML; add",
    ),
    "HTML image": (
        lambda nb: nb.cells[3].outputs[0].data.update({"text/html": '<img\n alt="" src="x.png">'}),
        "cell 4 (explorer): an <img> without alt text in its HTML; add",
    ),
    "Markdown image": (
        lambda nb: nb.cells[0].update(source="![](queue.png)"),
        "cell 1 (title): an image without alt text in its Markdown; write",
    ),
    "figure directive": (
        lambda nb: nb.cells[0].update(source=":::{figure} queue.png\n:name: queue\nA queue\n:::"),
        "cell 1 (title): an image without alt text in its Markdown; write",
    ),
    "semicolon": (
        lambda nb: nb.cells[2].update(source="plt.plot([1, 3]);"),
        "cell 3 (plot): a trailing semicolon; end a plotting cell with plt.show()",
    ),
    "plot's value": (
        lambda nb: nb.cells[1].outputs.append(shown("execute_result", text_plain="[<matplotlib.lines.Line2D at 0x7f>]")),
        "cell 2 (print): it shows '[<matplotlib.lines.Line2D at 0x7f>]'; end a plotting cell with plt.show()",
    ),
    "widget state": (lambda nb: nb.metadata.update(widgets={}), "it holds the widgets' state; run"),
    "widget view": (
        lambda nb: nb.cells[3].outputs[0].data.update({"application/vnd.jupyter.widget-view+json": {"model_id": "7"}}),
        "cell 4 (explorer): it holds a widget's view; run",
    ),
    "widget without a page face": (
        lambda nb: nb.cells[3].outputs[0].update(data={"text/plain": "IntSlider(value=3)"}),
        "cell 4 (explorer): a widget that the page cannot show; use an explorer",
    ),
    "progress bar": (
        lambda nb: nb.cells[5].outputs.append(shown(text_plain=" 50%|█████     | 1/2")),
        "cell 6 (timed): a progress bar; use tqdm.tqdm",
    ),
    "unmerged streams": (
        lambda nb: nb.cells[1].outputs.append(stream("3\n")),
        "not as --clean leaves it; run python tools/notebooks.py --clean",
    ),
    "an editor's metadata": (lambda nb: nb.cells[0].metadata.update(editable=False), "not as --clean leaves it; run"),
}


def test_the_committed_chapters_have_no_findings():
    chapters = sorted((ROOT / "chapters").glob("*.ipynb"))
    assert chapters
    assert {path.name: notebooks.check(path) for path in chapters} == {path.name: [] for path in chapters}


def test_a_sound_notebook_has_no_findings(tmp_path):
    write(tmp_path / "x.ipynb", sound())
    assert notebooks.check(tmp_path / "x.ipynb") == []


@pytest.mark.parametrize(("plant", "expected"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found_with_place_and_remedy(plant, expected, tmp_path):
    notebook = sound()
    plant(notebook)
    write(tmp_path / "x.ipynb", notebook)
    found = notebooks.check(tmp_path / "x.ipynb")
    assert len(found) == 1
    assert found[0].startswith(expected)


@pytest.mark.parametrize(
    "source", ["see [a page](https://example.org/home/x) and ../tmp/y", "`softmax/work` a / b /c", "/ tmp"]
)
def test_addresses_and_relative_paths_are_not_taken_for_a_machine_path(source, tmp_path):
    notebook = sound()
    notebook.cells[0].source = source
    write(tmp_path / "x.ipynb", notebook)
    assert notebooks.check(tmp_path / "x.ipynb") == []


def test_the_command_prints_file_cell_finding_and_remedy_and_exits_with_1(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = sound()
    write(tmp_path / "good.ipynb", notebook)
    FAULTS["never run"][0](notebook)
    write(tmp_path / "bad.ipynb", notebook)
    (tmp_path / "broken.ipynb").write_text("{")
    assert notebooks.main(["--check", "bad.ipynb", "broken.ipynb", "gone.ipynb", "good.ipynb"]) == 1
    bad, broken, gone, good = capsys.readouterr().out.splitlines()
    assert bad == "bad.ipynb cell 3 (plot): it never ran; run python tools/notebooks.py"
    assert broken.startswith("broken.ipynb: not a notebook")
    assert gone.startswith("gone.ipynb: ")
    assert good == "good.ipynb: no findings"
    assert notebooks.main(["--check", "good.ipynb"]) == 0


def test_cleaning_takes_out_the_traces_of_editors_machines_and_chance(tmp_path, capsys):
    path = tmp_path / "x.ipynb"
    clean = write(path, sound())
    notebook = sound()
    notebook.nbformat_minor = 4
    notebook.metadata.update(widgets={"state": {}}, toc={"base": 1})
    notebook.metadata.kernelspec.update(name="my-env", display_name="Mine")
    notebook.metadata.language_info.version = "3.11.7"
    notebook.cells[0].metadata.update(editable=True, tags=[])
    notebook.cells[1].update(metadata={"execution": {"iopub.status.busy": "now"}}, outputs=[stream("1\n"), stream("2\n")])
    notebook.cells[3].outputs[0].data["application/vnd.jupyter.widget-view+json"] = {"model_id": "7"}
    notebook.cells[3].outputs[0].execution_count = 40
    notebook.cells[4].update(execution_count=41)
    notebook.cells[4].outputs[0].traceback = ["File /home/ada/x.py, line 1"]
    assert write(path, notebook) != clean
    assert notebooks.main(["--clean", str(path)]) == 0
    assert path.read_bytes() == clean
    assert notebooks.main(["--clean", str(path)]) == 0
    assert path.read_bytes() == clean
    assert [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()] == ["written", "unchanged"]


def test_cleaning_gives_lasting_ids_and_leaves_unrun_cells_unrun():
    notebook = sound()
    del notebook.cells[0]["id"]
    notebook.cells[1].id = "cell-1"
    notebook.cells[2].update(id="plot", execution_count=None)
    notebook.cells[3].id = "plot"
    notebooks.clean(notebook)
    assert [cell.id for cell in notebook.cells] == ["cell-2", "cell-1", "plot", "cell-4", "raises", "timed"]
    assert notebook.cells[2].execution_count is None


LIVELY = {
    "imports": "import sys\n\nimport ipywidgets\nimport matplotlib.pyplot as plt\nfrom tqdm import tqdm",
    "stream": "for i in tqdm(range(50)):\n    print(i, flush=True)",
    "plot": "plt.plot([1, 3, 2])\nplt.show()",
    "widget": (
        "class Explorer(ipywidgets.VBox):\n"
        "    def _repr_mimebundle_(self, **kwargs):\n"
        "        return super()._repr_mimebundle_(**kwargs) | {'text/html': '<p>θ</p>', 'text/plain': 'Explorer(θ)'}\n"
        "\n\n"
        "Explorer([ipywidgets.IntSlider()])"
    ),
}


def lively(**more: str) -> NotebookNode:
    """A notebook that never ran, with all that tends to differ between two runs."""
    cells = [v4.new_code_cell(source, id=id, metadata=ALT if id == "plot" else {}) for id, source in (LIVELY | more).items()]
    return v4.new_notebook(cells=cells)


def test_running_a_notebook_twice_gives_the_same_bytes_and_no_findings(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")  # a reader's setting that would hide the pictures
    path = tmp_path / "x.ipynb"
    write(path, lively())
    assert notebooks.main([str(path)]) == 0
    first = path.read_bytes()
    assert b"image/png" in first
    assert notebooks.main([str(path)]) == 0
    assert path.read_bytes() == first
    assert [line.split(", ")[1] for line in capsys.readouterr().out.splitlines()] == ["written", "unchanged"]
    assert notebooks.check(path) == []
    assert os.listdir(tmp_path) == ["x.ipynb"]


CRASHES = {
    "an exception": ("1 / 0", "ZeroDivisionError: division by zero; mend the cell, the file is as it was"),
    "an exception in a callback": (
        "import ipywidgets\n\nbutton = ipywidgets.Button()\nbutton.on_click(lambda button: 1 / 0)\nbutton.click()",
        "ZeroDivisionError: division by zero; mend the cell",
    ),
    "a cell that takes too long": ("import time\n\ntime.sleep(60)", "A cell timed out while it was being executed"),
    "a kernel that dies": ("import os\n\nos._exit(1)", "Kernel died; mend the cell"),
    "a file edited meanwhile": ("open('x.ipynb', 'a').write(' ')", None),
}


@pytest.mark.parametrize(("source", "expected"), CRASHES.values(), ids=CRASHES)
def test_a_crash_names_the_cell_and_leaves_the_file_alone(source, expected, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "sleep" in source:
        monkeypatch.setattr(notebooks, "CELL_TIMEOUT", 3)
    path = tmp_path / "x.ipynb"
    cells = [
        v4.new_markdown_cell("# Title", id="title"),
        *(v4.new_code_cell(text, id=id) for id, text in (("fine", "1"), ("crash", source))),
    ]
    before = write(path, v4.new_notebook(cells=cells))
    assert notebooks.main(["x.ipynb"]) == 1
    printed = capsys.readouterr().out
    if expected:
        assert printed.startswith(f"x.ipynb cell 3 (crash): {expected}")
        assert path.read_bytes() == before
    else:
        assert printed == "x.ipynb: the file changed while its cells ran; it is left alone, so run again\n"
        assert path.read_bytes() == before + b" "
    assert os.listdir(tmp_path) == ["x.ipynb"]


def test_a_slow_notebook_is_warned_about(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(notebooks, "NOTEBOOK_LIMIT", 0)
    write(tmp_path / "x.ipynb", v4.new_notebook(cells=[v4.new_code_cell("1", id="one")]))
    assert notebooks.main([str(tmp_path / "x.ipynb")]) == 0
    assert capsys.readouterr().out.endswith("s, written, warning: over the 0 s that a chapter may take\n")


# id → source, what is planted in the stored cell after the run (None: nothing), whether strict nbval must fail there.
DRIFTS = {
    "number": ("print(6 * 7)", lambda cell: cell.outputs[0].update(text="41\n"), True),
    "picture": ("plt.plot([3, 1])\nplt.show()", lambda cell: cell.outputs[0].data.update({"image/png": OTHER_PNG}), False),
    "html-picture": (
        f'from IPython.display import HTML\n\nHTML(\'<img alt="θ" src="data:image/png;base64,{PNG.strip()}">\')',
        lambda cell: cell.outputs[0].data.update({"text/html": cell.outputs[0].data["text/html"].replace("mNk", "mNg")}),
        False,
    ),
    "html-text": ("HTML('<p>2 of 3</p>')", lambda cell: cell.outputs[0].data.update({"text/html": "<p>3 of 3</p>"}), True),
    "callback": ("1", lambda cell: cell.update(source=CRASHES["an exception in a callback"][0], outputs=[]), True),
    "callback-ignored": (
        "2",
        lambda cell: cell.update(source="button.click()", outputs=[], metadata={"tags": ["nbval-ignore-output"]}),
        True,
    ),
    "ignored": ("print(4)", lambda cell: cell.metadata.update(tags=["nbval-ignore-output"]) or cell.update(outputs=[]), False),
    "missing": ("print(5)", lambda cell: cell.update(outputs=[]), True),
    "semicolon": ("plt.plot([1, 2]);", None, True),
    "address": ("object()", None, False),
}


def test_strict_nbval_fails_where_text_drifts_or_a_callback_raises_and_only_there(tmp_path):
    path, report = tmp_path / "x.ipynb", tmp_path / "report.xml"
    write(path, lively(**{id: source for id, (source, _, _) in DRIFTS.items()}))
    assert notebooks.main([str(path)]) == 0
    notebook = notebooks.read(path.read_bytes())
    for cell in notebook.cells:
        _, plant, _ = DRIFTS.get(cell.id, (None, None, False))
        if plant:
            plant(cell)
    write(path, notebook)

    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-p", "conftest", "-p", "no:cacheprovider"]
    command += ["--nbval", f"--junitxml={report}", str(path)]
    run = subprocess.run(command, cwd=ROOT, env=os.environ | {"MPLBACKEND": "Agg"}, capture_output=True, text=True, timeout=120)

    cases = ElementTree.parse(report).iter("testcase")
    outcome = dict(zip((cell.id for cell in notebook.cells), (case.find("failure") is not None for case in cases), strict=True))
    assert outcome == dict.fromkeys(LIVELY, False) | {id: fails for id, (_, _, fails) in DRIFTS.items()}, run.stdout
