"""The book's own script on small pages: verdicts become boxes, columns stay columns, what scrolls says so."""

from collections.abc import Iterator

import pytest
from browser import ROOT, watch

CLAIM = "at temperature 0.001 all 360 soft look-ups < the dictionary's · a margin & more"


def output(text: str) -> str:
    """What a cell printed, as MyST-NB writes it."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    pre = f'<div class="highlight"><pre><span></span>{text}</pre>\n</div>'
    return f'<div class="cell_output"><div class="output stream highlight-myst-ansi notranslate">{pre}</div>\n</div>'


@pytest.fixture
def show(browser, tmp_path) -> Iterator:
    """Put a body on a page with the book's script and style, open it, and let no error pass."""
    with watch(browser, tmp_path.as_uri(), width=400) as watched:

        def show(body: str):
            (tmp_path / "page.html").write_text(
                '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
                "<script>const DOCUMENTATION_OPTIONS = {};</script>"
                f"<style>{(ROOT / 'static/book.css').read_text(encoding='utf-8')}</style>"
                f"<script>{(ROOT / 'static/book.js').read_text(encoding='utf-8')}</script>"
                f'<article class="bd-article">{body}</article>',
                encoding="utf-8",
            )
            return watched.open("page")

        yield show
        assert watched.problems == []


@pytest.mark.parametrize(("word", "kind"), [("holds", "holds"), ("holds when", "when"), ("does not hold here", "not")])
def test_a_verdict_becomes_a_box_with_the_same_words_and_the_other_lines_stay(show, word, kind):
    page = show(output(f"first line\nA5 · {word} · {CLAIM}\n"))
    box = page.locator("p.verdict")
    assert box.count() == 1
    assert box.get_attribute("class") == f"verdict {kind}"
    assert box.text_content() == f"A5 · {word} · {CLAIM}"
    assert box.locator("strong").text_content() == word
    assert page.locator("pre").text_content() == "first line\n"
    assert page.locator(".output + p.verdict").count() == 1


def test_an_output_that_was_all_verdict_leaves_no_empty_box_and_nothing_to_copy(show):
    page = show(output(f"A5 · holds · {CLAIM}\nA11 · holds · {CLAIM}\n"))
    assert page.locator("p.verdict").all_text_contents() == [f"A5 · holds · {CLAIM}", f"A11 · holds · {CLAIM}"]
    assert page.locator("pre").count() == 0


@pytest.mark.parametrize(
    "line",
    [
        "A5 holds · no point",
        "A5 · holds",
        "A5 · hold · x",
        " A5 · holds · x",
        "A05 · holds · x",
        "holds: A1, A5",
        "A5 · holds · ",
    ],
)
def test_lines_that_are_no_verdict_stay_as_they_are(show, line):
    page = show(output(line + "\n"))
    assert page.locator("p.verdict").count() == 0
    assert page.locator("pre").text_content() == line + "\n"


def test_code_that_prints_a_verdict_is_left_alone(show):
    page = show(f'<div class="cell_input"><div class="highlight"><pre>A5 · holds · {CLAIM.replace("<", "")}</pre></div></div>')
    assert page.locator("p.verdict").count() == 0


def test_no_output_is_painted_before_it_is_read(show):
    """However slowly the page comes, an output is whole and read as soon as the parser is past it."""
    seen = (
        "<script>seen = document.querySelectorAll('p.verdict').length + ',' + document.querySelectorAll('pre').length</script>"
    )
    page = show("<script>var seen</script>" + output(f"A5 · holds · {CLAIM}\n") + "<p>next</p>" + seen + output("later\n"))
    assert page.evaluate("seen") == "1,0"


def test_columns_keep_their_lines_and_sentences_wrap(show):
    sentence = "a sentence that is much too long for the width of a phone and has to go on in the next line"
    page = show(
        output("error                       all sizes differ    all sizes equal\nno scale    ·  ·\n") + output(sentence)
    )
    columns, wrapped = page.locator("pre").all()
    assert columns.evaluate("e => getComputedStyle(e).whiteSpace") == "pre"
    assert columns.evaluate("e => e.scrollWidth > e.clientWidth")
    assert wrapped.evaluate("e => e.scrollWidth <= e.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_a_box_that_scrolls_fades_where_there_is_more_and_takes_the_keyboard(show):
    wide = '<div class="pst-scrollable-table-container" style="overflow-x: auto"><div style="width: {}px">wide</div></div>'
    page = show(wide.format(900) + wide.format(100))
    large, small = page.locator(".pst-scrollable-table-container").all()
    page.wait_for_function("document.querySelector('.more-right')")
    assert (large.get_attribute("tabindex"), small.get_attribute("tabindex")) == ("0", None)
    assert "more" not in small.get_attribute("class")
    large.evaluate("e => e.scrollTo(e.scrollWidth, 0)")
    page.wait_for_function("document.querySelector('.more-left:not(.more-right)')")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("word", ["holds", "holds when", "does not hold here"])
def test_a_verdict_is_readable_in_both_themes(show, theme, word):
    page = show(output(f"A5 · {word} · {CLAIM}\n"))
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    colors = page.locator("p.verdict").evaluate(
        "e => [getComputedStyle(e).backgroundColor, getComputedStyle(e.querySelector('strong')).color]"
    )
    background, ink = (_luminance(color) for color in colors)
    assert (max(background, ink) + 0.05) / (min(background, ink) + 0.05) >= 4.5


def _luminance(color: str) -> float:
    """Relative luminance of `rgb(r, g, b)`, as WCAG 2 defines it."""
    parts = [int(part) / 255 for part in color[4:-1].split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
