"""Refresh the notebooks' outputs, keep the files clean, and check them. The only way that outputs are renewed.

    python tools/notebooks.py [paths …]            run, clean, write; then bring the ledger of claims up to date
    python tools/notebooks.py --clean [paths …]    clean without running, after an edit in JupyterLab
    python tools/notebooks.py --check [paths …]    change nothing: print what is wrong and exit with 1

Without paths it takes every notebook in chapters/. A notebook is written only when its bytes change and only when every cell
ran: after an error the file is as it was. What is neither random nor timed comes out byte for byte the same at each run;
cells whose output may differ carry the tag `nbval-ignore-output`. What `--check` looks at is in `hygiene.py`.
"""

import argparse
import os
import shutil
import sys
import time
from itertools import count
from pathlib import Path

import hygiene
import ledger
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode, from_dict, v4

ROOT = Path(__file__).resolve().parent.parent
CELL_TIMEOUT = 300  # seconds
NOTEBOOK_LIMIT = 90  # seconds; beyond it a chapter is too slow to be run along

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE_INFO = {  # as ipykernel writes it, without Python's version, which differs from machine to machine
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}
KEPT_METADATA = ("mystnb", "myst")  # of a notebook; kernelspec and language_info are set, the rest is an editor's
KEPT_CELL_METADATA = ("tags", "mystnb")


class NotebookError(Exception):
    """A notebook that could not be read, run or written; the message says where and what to do."""


def kernel_environment(environment: dict[str, str]) -> dict[str, str]:
    """What a kernel should see of the environment: no progress bars in outputs, pictures by the inline backend."""
    kept = {name: value for name, value in environment.items() if name != "MPLBACKEND"}
    return kept | {"TQDM_DISABLE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run every cell in a fresh kernel whose working directory is `folder`; the outputs go into `notebook`.

    Raises:
        NotebookError: a cell raised, printed an error (as a widget's callback does), ran too long or killed the kernel.
    """
    running = {}
    client = NotebookClient(
        notebook,
        kernel_name=KERNELSPEC["name"],
        timeout=CELL_TIMEOUT,
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],  # the kernel's remarks about its transport are not for authors
        resources={"metadata": {"path": str(folder)}},
        on_cell_execute=lambda cell, cell_index: running.update(index=cell_index),
    )
    try:
        client.execute(env=kernel_environment(dict(os.environ)))
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        where = hygiene.place(notebook, running.get("index"))
        reason = f"{error.ename}: {error.evalue}" if isinstance(error, CellExecutionError) else str(error).splitlines()[0]
        raise NotebookError(f"{where}: {reason}; mend the cell, the file is as it was\n{error}") from None
    for index, message in hygiene.errors(notebook):
        raise NotebookError(f"{hygiene.place(notebook, index)}: {message}")


def clean(notebook: NotebookNode) -> NotebookNode:
    """Drop what differs between two runs, machines or editors. Works in place, changes nothing the second time.

    Execution counts become 1 … n; a cell that never ran keeps none, so that `--check` finds it.
    """
    notebook.nbformat, notebook.nbformat_minor = 4, 5  # 4.5 is the first format with cell ids
    metadata = {key: notebook.metadata[key] for key in KEPT_METADATA if key in notebook.metadata}
    notebook.metadata = from_dict(metadata | {"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO})
    _give_ids(notebook.cells)
    number = 0
    for cell in notebook.cells:
        cell.metadata = NotebookNode({key: cell.metadata[key] for key in KEPT_CELL_METADATA if cell.metadata.get(key)})
        if cell.cell_type == "code":
            number += 1
            cell.execution_count = number if cell.get("execution_count") else None
            cell.outputs = _clean_outputs(cell.outputs, cell.execution_count)
    return notebook


def _give_ids(cells: list[NotebookNode]) -> None:
    """Give a cell without an id, or with one that an earlier cell has, an id from its position."""
    taken = {cell.id for cell in cells if "id" in cell}
    seen = set()
    for number, cell in enumerate(cells, 1):
        if "id" not in cell or cell.id in seen:
            cell.id = next(name for step in count(number) if (name := f"cell-{step}") not in taken)
            taken.add(cell.id)
        seen.add(cell.id)


def _clean_outputs(outputs: list[NotebookNode], execution_count: int | None) -> list[NotebookNode]:
    kept = []
    for output in outputs:
        if output.output_type == "stream":
            if kept and kept[-1].output_type == "stream" and kept[-1].name == output.name:
                kept[-1].text += output.text  # how often a stream is flushed is chance
                continue
        elif output.output_type == "error":
            output.traceback = [f"{output.ename}: {output.evalue}"]  # the frames name files of this machine
        else:
            output.data.pop(hygiene.WIDGET_VIEW, None)  # its id is random
            if output.output_type == "execute_result":
                output.execution_count = execution_count
        kept.append(output)
    return kept


def refresh(path: Path, run: bool) -> str:
    """Run (if asked) and clean one notebook file. Returns what happened, in words.

    Raises:
        NotebookError: see `execute`; also a file that is no notebook, or that changed while its cells ran.
    """
    before = path.read_bytes()
    notebook = read(before)
    start = time.monotonic()
    if run:
        execute(notebook, path.parent)
    seconds = time.monotonic() - start
    after = (v4.writes(clean(notebook)) + "\n").encode()
    if after != before:
        if path.read_bytes() != before:
            raise NotebookError("the file changed while its cells ran; it is left alone, so run again")
        _replace(path, after)
    words = [f"{seconds:.1f} s"] * run + ["unchanged" if after == before else "written"]
    if seconds > NOTEBOOK_LIMIT:
        words.append(f"warning: over the {NOTEBOOK_LIMIT} s that a chapter may take")
    return ", ".join(words)


def read(content: bytes) -> NotebookNode:
    """A notebook as it is in the file: nothing repaired, as `nbformat.read` would.

    Raises:
        NotebookError: not the JSON of a notebook.
    """
    try:
        notebook = v4.reads(content.decode())
        if notebook.nbformat != 4:
            raise ValueError(f"format {notebook.nbformat}")
    except (ValueError, AttributeError, TypeError) as error:
        raise NotebookError(f"not a notebook of format 4 ({error}); take the last good version from git") from None
    return notebook


def _replace(path: Path, content: bytes) -> None:
    """All or nothing: the new content is complete on disk before it takes the file's name."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check(path: Path) -> list[str]:
    """What is wrong with one notebook file, each finding with its place and remedy."""
    content = path.read_bytes()
    notebook = read(content)
    found = [
        message if index is None else f"{hygiene.place(notebook, index)}: {message}"
        for index, message in hygiene.findings(notebook, content)
    ]
    if not found and (v4.writes(clean(notebook)) + "\n").encode() != content:
        found.append("not as --clean leaves it; run python tools/notebooks.py --clean")
    return found


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit status: 0, or 1 when a notebook failed or has findings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, help="notebooks; all of chapters/ when left out")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--clean", action="store_true", help="clean without running")
    mode.add_argument("--check", action="store_true", help="change nothing, print findings, exit with 1 if there are any")
    options = parser.parse_args(arguments)

    failed = False
    for path in options.paths or sorted((ROOT / "chapters").glob("*.ipynb")):
        name = os.path.relpath(path)
        try:
            lines = check(path) if options.check else [refresh(path, run=not options.clean)]
            failed |= options.check and bool(lines)
        except (NotebookError, OSError) as error:
            lines, failed = [str(error)], True
        for line in lines or ["no findings"]:
            print(f"{name} {line}" if line.startswith("cell ") else f"{name}: {line}", flush=True)
    if not (failed or options.check or options.paths):
        ledger.main([])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
