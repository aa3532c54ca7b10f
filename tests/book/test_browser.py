"""The built book in a browser: offline, without errors, usable by keyboard and on a phone, in both themes."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from browser import HTML, chromium, pages, require_book, serve, watch
from bs4 import BeautifulSoup

PAGES = pages()
CHAPTERS = [name for name in PAGES if (HTML.parents[1] / f"{name}.ipynb").exists()]
THEMES = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator:
    require_book()
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module", params=["http", "file"])
def base(request, browser) -> Iterator[str]:
    """The address of the book: served, or the folder itself."""
    if request.param == "file":
        yield HTML.as_uri()
    else:
        with serve(HTML) as address:
            yield address


@pytest.fixture
def home() -> str:
    """The book as a folder, for what does not depend on how it is opened."""
    return HTML.as_uri()


@pytest.mark.parametrize("name", [*PAGES, "index", "search", "genindex"])
def test_a_page_loads_nothing_from_elsewhere_and_reports_no_error(browser, base, name):
    with watch(browser, base) as watched:
        page = watched.open(name)
        page.mouse.wheel(0, 100_000)  # what loads only when it is scrolled to
        page.wait_for_load_state("networkidle")
        assert watched.problems == []


@pytest.mark.parametrize("name", PAGES)
def test_formulas_are_set(browser, base, name):
    source = BeautifulSoup((HTML / f"{name}.html").read_text(encoding="utf-8"), "html.parser")
    formulas = len(source.select("article .math"))
    assert formulas > 0 or name not in CHAPTERS
    with watch(browser, base) as watched:
        page = watched.open(name)
        assert page.locator("article .math mjx-container").count() >= formulas
        assert page.locator("article mjx-merror").count() == 0
        words = page.evaluate(
            "() => { const copy = document.querySelector('article').cloneNode(true);"
            "copy.querySelectorAll('pre, code, script, style').forEach(e => e.remove()); return copy.textContent }"
        )
        assert re.findall(r"\$|\\\(|\\\[|\\[a-z]{2,}", words) == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_control_changes_picture_and_text_by_key_and_by_hand(browser, base, name):
    with watch(browser, base) as watched:
        page = watched.open(name)
        explorers = page.locator("form.explorer:has(img):has([data-stride])")
        assert explorers.count() >= 2, "a chapter has at least two explorers"
        for explorer in explorers.all():
            for slider in explorer.locator("input[type=range]").all():
                slider.fill(slider.get_attribute("min"))
                at_start = _face(explorer)
                slider.focus()
                page.keyboard.press("ArrowRight")
                _assert_moved(at_start, _face(explorer))
                box = slider.bounding_box()
                page.mouse.click(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
                _assert_moved(at_start, _face(explorer))
            for choice in explorer.locator("fieldset.choice").all():
                choice.locator("input").first.check()
                choice.locator("input").first.focus()
                at_start = _face(explorer)
                page.keyboard.press("ArrowDown")
                _assert_moved(at_start, _face(explorer))
                choice.locator("label").first.click()
                assert _face(explorer) == at_start
        assert watched.problems == []


def _face(explorer) -> tuple[str, str]:
    """The picture and its words, which stand below it too."""
    picture = explorer.locator("img")
    source, text = picture.get_attribute("src"), picture.get_attribute("alt")
    assert explorer.locator(".says").inner_text() == text
    return source, text


def _assert_moved(before: tuple[str, str], after: tuple[str, str]) -> None:
    assert before[0] != after[0], "the picture stayed"
    assert before[1] != after[1], "the alt text stayed"


@pytest.mark.parametrize("width", [400, 1300])
def test_the_sidebar_opens_and_closes(browser, base, width):
    with watch(browser, base, width=width) as watched:
        page = watched.open(PAGES[0])
        link = page.locator(".bd-sidebar-primary nav a.reference").first
        button = page.locator("button.primary-toggle:visible")

        def in_sight() -> bool:
            page.wait_for_timeout(400)
            box = link.bounding_box()
            return link.is_visible() and box is not None and box["x"] >= 0

        at_first = in_sight()
        assert at_first == (width > 1000)
        button.click()
        assert in_sight() != at_first
        if width < 1000:
            page.mouse.click(width - 10, 450)  # on a phone a touch beside the sidebar closes it
        else:
            button.click()
        assert in_sight() == at_first
        assert watched.problems == []


def test_the_sidebar_leads_to_a_chapter_on_a_phone(browser, base):
    with watch(browser, base, width=400) as watched:
        page = watched.open(PAGES[0])
        page.locator("button.primary-toggle:visible").click()
        page.locator(".bd-sidebar-primary nav a.reference").first.click()
        page.wait_for_url(f"**/{PAGES[1]}.html")
        assert watched.problems == []


def test_search_finds_a_word_of_the_chapter(browser, base):
    with watch(browser, base) as watched:
        page = watched.open(PAGES[0])
        page.locator("button.search-button__button:visible").first.click()
        page.keyboard.type("softmax")
        page.keyboard.press("Enter")
        page.wait_for_selector("#search-results li a")
        found = page.locator("#search-results li a").first
        found.click()
        page.wait_for_load_state("load")
        assert "softmax" in page.locator("article").inner_text().lower()
        assert watched.problems == []


def test_search_says_when_it_finds_nothing(browser, base):
    with watch(browser, base) as watched:
        page = watched.open("search", "?q=qwxzkj")
        page.wait_for_function("document.querySelector('#search-results').innerText.includes('did not match')")
        assert watched.problems == []


def test_the_theme_switch_goes_dark_and_back(browser, base):
    with watch(browser, base, color_scheme="light") as watched:
        page = watched.open(PAGES[1])
        button = page.locator("button.theme-switch-button:visible").first
        seen = []
        for _ in range(3):  # light, dark, the reader's own setting, in a circle
            button.click()
            seen.append((page.locator("html").get_attribute("data-theme"), _background(page)))
        assert {theme for theme, _ in seen} == {"light", "dark"}
        assert len({color for _, color in seen}) == 2
        assert watched.problems == []


def test_a_reader_whose_system_is_dark_gets_the_dark_theme(browser, home):
    with watch(browser, home, color_scheme="dark") as watched:
        page = watched.open(PAGES[0])
        assert page.locator("html").get_attribute("data-theme") == "dark"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_serious_fault_in_the_text(browser, home, name, theme):
    from axe_playwright_python.sync_playwright import Axe

    with watch(browser, home, color_scheme=theme) as watched:
        page = watched.open(name)
        page.evaluate("document.querySelectorAll('article details').forEach(details => details.open = true)")
        for button in page.locator("article .toggle-button-hidden:visible").all():
            button.click()
        # What opens fades in, and axe would judge the pale colors on the way.
        page.evaluate("Promise.all(document.getAnimations().map(animation => animation.finished))")
        result = Axe().run(page, context="article", options={"resultTypes": ["violations"]})
        assert len(result.response["passes"]) > 5, "axe looked at the page"
        faults = [
            f"{fault['id']} ({fault['impact']}): {node['target']} {node['html'][:160]} {node['failureSummary']}"
            for fault in result.response["violations"]
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"]
        ]
        assert faults == []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_phone(browser, home, name):
    with watch(browser, home, width=400) as watched:
        page = watched.open(name)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        # Also where an ancestor would cut it off in silence: what sticks out must be inside something that scrolls.
        cut = page.evaluate(
            """() => [...document.querySelectorAll('article *')].filter(element => {
                if (element.getBoundingClientRect().right <= 401 || !element.checkVisibility()) return false;
                if (element.closest('mjx-assistive-mml, .visually-hidden')) return false;
                for (let e = element.parentElement; e && e.tagName !== 'ARTICLE'; e = e.parentElement)
                    if (['auto', 'scroll'].includes(getComputedStyle(e).overflowX)) return false;
                return true;
            }).map(element => element.outerHTML.slice(0, 160))"""
        )
        assert cut == []


@pytest.mark.parametrize("name", PAGES)
def test_every_image_says_what_it_shows(name):
    require_book()
    for image in _soup(HTML / f"{name}.html").select("article img"):
        alt = image.get("alt", "").strip()
        assert len(alt) > 10, f"no alt text: {str(image)[:200]}"
        assert not re.search(r"_images|\.(png|svg|jpe?g)$", alt), f"a file name for alt text: {alt}"


def test_every_link_inside_the_book_leads_somewhere():
    require_book()
    pages = {path: _soup(path) for path in HTML.rglob("*.html") if "_static" not in path.parts}
    anchors = {path: {tag["id"] for tag in soup.select("[id]")} for path, soup in pages.items()}
    broken = []
    for path, soup in pages.items():
        for link in soup.select("a[href]"):
            address, anchor = urldefrag(urljoin(path.as_uri(), link["href"]))
            if not address.startswith("file:"):
                continue
            target = Path(unquote(address.removeprefix("file://").partition("?")[0]))
            if not target.exists() or (anchor and target in anchors and unquote(anchor) not in anchors[target]):
                broken.append(f"{path.relative_to(HTML)}: {link['href']}")
    assert broken == []


def _soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def _background(page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")
