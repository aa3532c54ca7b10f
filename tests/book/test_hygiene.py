"""The committed notebooks keep the rules of `tools/hygiene.py`, and each rule finds the fault that it is there for.

A fault is planted in a small sound notebook, and must be found once, with its place and its remedy.
"""

from pathlib import Path

import notebooks
import pytest
from nbformat import v4
from samples import shown, sound, stream, write

ROOT = Path(__file__).resolve().parents[2]

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
