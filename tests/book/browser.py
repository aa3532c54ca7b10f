"""What the browser tests share: a Chromium, a local server, and pages under watch.

They need a Chromium or Chrome on the machine, playwright (requirements-dev.txt) and a book that is built and up to date.
What is missing is said as the reason of a skip; with REQUIRE_BROWSER=1 in the environment it is a failure.
"""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
LAUNCH = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SOURCES = ("_config.yml", "_toc.yml", "*.md", "chapters/*.md", "chapters/*.ipynb", "static/*")


def missing(reason: str) -> None:
    """Skip the test, or fail where nothing may be skipped."""
    (pytest.fail if os.environ.get("REQUIRE_BROWSER") == "1" else pytest.skip)(reason)


def pages() -> list[str]:
    """The book's pages in reading order, without `.html`."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *(chapter["file"] for chapter in toc["chapters"])]


def require_book() -> None:
    """The built book must be there, and newer than what it is made from."""
    index = HTML / "searchindex.js"  # written last
    if not index.exists():
        missing("the book is not built: make book")
    changed = [path.name for pattern in SOURCES for path in ROOT.glob(pattern) if path.stat().st_mtime > index.stat().st_mtime]
    if changed:
        missing(f"the built book is older than {changed[0]}: make book")


@contextmanager
def chromium() -> Iterator:
    """A headless browser; playwright's own cannot be downloaded everywhere, so the system's is used."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if path is None:
        missing("no Chromium or Chrome found; on Debian and Ubuntu: sudo apt install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed: pip install -r requirements-dev.txt")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=LAUNCH)
        yield browser
        browser.close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port of this machine; gives the address without a slash at its end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Watched:
    """A page that is cut off from every other host and remembers what went wrong on it.

    `problems` lists requests to another host, failed requests, answers of 400 and above, console errors and uncaught
    exceptions, in the order in which they came.
    """

    def __init__(self, browser, base: str, width: int = 1300, **options):
        self.base = base
        self.problems: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, reduced_motion="reduce", **options)
        self.page.route("**/*", self._gate)
        self.page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        self.page.on("console", lambda line: line.type == "error" and self.problems.append(f"console: {line.text}"))
        self.page.on("response", lambda answer: answer.status >= 400 and self.problems.append(f"{answer.status}: {answer.url}"))
        self.page.on("requestfailed", lambda request: self.problems.append(f"failed: {request.url}"))

    def _gate(self, route) -> None:
        address = urlsplit(route.request.url)
        at_home = address.scheme in ("data", "blob") or route.request.url.startswith(self.base)
        if at_home:
            route.continue_()
        else:
            self.problems.append(f"another host: {route.request.url}")
            route.abort()

    def open(self, name: str, query: str = ""):
        """Load a page of the book and wait until its formulas are set; returns playwright's page."""
        self.page.goto(f"{self.base}/{name}.html{query}", wait_until="load")
        self.page.wait_for_function("!window.MathJax || MathJax.startup?.promise?.then(() => true)")
        return self.page


@contextmanager
def watch(browser, base: str, **options) -> Iterator[Watched]:
    """A watched page that is closed at the end."""
    watched = Watched(browser, base, **options)
    yield watched
    watched.page.close()
