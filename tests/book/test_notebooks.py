"""Renewing outputs is repeatable to the byte and never harms a file; strict nbval fails where it should and only there."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import notebooks
import pytest
from nbformat import v4
from samples import LIVELY, PNG, lively, sound, stream, write

ROOT = Path(__file__).resolve().parents[2]


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
    "picture": (
        "plt.plot([3, 1])\nplt.show()",
        lambda cell: cell.outputs[0].data.update({"image/png": PNG.replace("mNk", "mNg")}),
        False,
    ),
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
