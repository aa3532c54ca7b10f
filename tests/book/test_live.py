"""The chapters live: JupyterLab opens one in a browser, runs every cell, and a slider or a choice draws a new picture."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from browser import ROOT, missing, pages, watch

CHAPTERS = [name for name in pages() if (ROOT / f"{name}.ipynb").exists()]
PATIENCE = 240  # seconds for all cells of a chapter; one takes up to 90 on two cores


@contextmanager
def jupyterlab(folder: Path) -> Iterator[tuple[str, str]]:
    """JupyterLab over a folder, apart from the user's own settings; gives its address and its token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = folder / ".settings"
    tracker = settings / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    tracker.parent.mkdir(parents=True)
    tracker.write_text(json.dumps({"windowingMode": "none"}))  # all outputs on the page, not only those in sight
    token = secrets.token_hex(16)
    options = {
        "ServerApp.root_dir": folder,
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.allow_root": True,
        "IdentityProvider.token": token,
        "LabApp.expose_app_in_browser": True,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.news_url": "",
    }
    own = {name: str(settings) for name in ("JUPYTER_CONFIG_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", *(f"--{name}={value}" for name, value in options.items())]
    with (folder / "lab.log").open("w") as log:
        lab = subprocess.Popen(command, cwd=folder, env=os.environ | own, stdout=log, stderr=subprocess.STDOUT)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(f"{address}/api?token={token}", lab, log.name)
            yield address, token
        finally:
            lab.terminate()
            lab.wait(30)


def _wait_for(address: str, lab: subprocess.Popen, log: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and lab.poll() is None:
        try:
            urlopen(address, timeout=5).close()
            return
        except (URLError, TimeoutError):
            time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start: {Path(log).read_text()[-2000:]}")


@pytest.fixture
def folder(tmp_path) -> Path:
    """A copy of the chapters, so that a run leaves the committed files alone, beside the results that they load."""
    shutil.copytree(ROOT / "chapters", tmp_path / "chapters", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    for name in ("experiments", "checkpoints", "benchmarks"):
        if (ROOT / name).exists():
            (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_cell_runs_in_jupyterlab_and_a_control_draws_anew(browser, folder, name):
    from playwright.sync_api import expect  # after the fixture, which says what is missing

    expect.set_options(timeout=30_000)
    with jupyterlab(folder) as (address, token), watch(browser, address) as watched:
        page = watched.page
        page.set_default_timeout(60_000)
        page.goto(f"{address}/lab/tree/{name}.ipynb?reset&token={token}")
        page.wait_for_function("window.jupyterapp?.shell.currentWidget?.context?.ready.then(() => true)")
        page.wait_for_function("jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'")

        page.set_default_timeout(PATIENCE * 1000)
        page.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells').finally(() => window.ran = true) }")
        page.wait_for_function("window.ran")
        assert _errors(page) == []
        counts = page.evaluate(
            """jupyterapp.shell.currentWidget.content.widgets
                .filter(cell => cell.model.type === 'code').map(cell => cell.model.executionCount)"""
        )
        assert None not in counts, "every cell ran"

        page.set_default_timeout(30_000)
        explorer = page.locator(".jp-OutputArea .widget-vbox:has(.noUi-handle, input[type=radio]):has(img)").first
        explorer.scroll_into_view_if_needed()
        picture = explorer.locator("img").first
        before = (picture.get_attribute("src"), picture.get_attribute("alt"))
        _turn(page, explorer)
        expect(picture).not_to_have_attribute("src", before[0])
        expect(picture).not_to_have_attribute("alt", before[1])
        assert _errors(page) == []
        assert [problem for problem in watched.problems if "another host" in problem] == []


def _turn(page, explorer) -> None:
    """Another value of the explorer's first slider, by the keyboard; where it has none, of its first choice."""
    handle = explorer.locator(".noUi-handle").first
    if handle.count() == 0:
        explorer.locator("input[type=radio]:not(:checked)").first.check()
        return
    handle.focus()
    at_end = handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemax")
    page.keyboard.press("ArrowLeft" if at_end else "ArrowRight")


def _errors(page) -> list[str]:
    """Errors in the cells' outputs, and what they wrote to stderr."""
    return page.evaluate(
        """jupyterapp.shell.currentWidget.content.widgets.flatMap(cell => (cell.model.toJSON().outputs ?? [])
            .filter(output => output.output_type === 'error' || output.name === 'stderr')
            .map(output => `${output.ename ?? 'stderr'}: ${output.evalue ?? output.text}`))"""
    )


def test_there_is_a_chapter_to_run():
    if not CHAPTERS:
        missing("no chapter in _toc.yml is a notebook")
