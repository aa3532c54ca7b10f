"""Picture every page of the built book, to be looked at: `make shots`, or `python tools/screenshots.py [folder]`.

Each page comes in the light theme, the dark theme and at the width of a phone, whole, as PNG files under `_build/shots`.
Needs playwright (requirements-dev.txt) and a Chromium or Chrome on the machine.
"""

import shutil
import sys
from pathlib import Path

import yaml
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
VIEWS = {"light": ("light", 1300), "dark": ("dark", 1300), "phone": ("light", 400), "phone-dark": ("dark", 400)}


def pages() -> list[str]:
    """The pages of the book in reading order, as _toc.yml has them."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *(chapter["file"] for chapter in toc["chapters"])]


def main(target: Path) -> None:
    """Write one PNG for each page and view into `target`."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("No Chromium found. On Debian and Ubuntu: sudo apt install chromium")
    html = ROOT / "_build" / "html"
    if not (html / "index.html").exists():
        sys.exit("The book is not built: make book")
    target.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for view, (theme, width) in VIEWS.items():
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce")
            for name in pages():
                page.goto((html / f"{name}.html").as_uri())
                page.wait_for_function(
                    "!window.MathJax || (MathJax.startup.promise && MathJax.startup.promise.then(() => true))"
                )
                picture = target / f"{name.replace('/', '-')}-{view}.png"
                page.screenshot(path=picture, full_page=True, timeout=180_000)
                print(picture)
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "_build" / "shots")
