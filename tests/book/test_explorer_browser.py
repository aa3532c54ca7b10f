"""The static faces of explorer and playground in a browser, on a page of their own: script and Python must agree."""

from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np
import pytest
from browser import chromium, missing, watch

from lib.study.explorer import Choice, Explorer, Slider
from lib.study.playground import AttentionPlayground, attention_steps
from lib.study.playground_page import written

TOKENS = ["the", "cat", "sat", "down"]
X = [[1.0, 0.5], [-1.0, 2.0], [0.5, -1.5], [-2.0, -0.5]]
MAPS = ([[1.0, 0.5], [0.0, 1.0]], [[1.0, 0.0], [1.0, -0.5]], [[0.5, 1.0], [-1.0, 0.5]])  # no symmetry that hides a transpose


def draw(power, sign, dots):
    figure, ax = plt.subplots(figsize=(3, 2))
    x = np.linspace(0, 1, 9)
    ax.plot(x, sign * x**power, "o-" if dots else "-")
    return figure


def describe(power, sign, dots):
    return f"x to the power {power:g}, times {sign}, {'with' if dots else 'without'} dots <&>."


def explorer(title: str) -> Explorer:
    return Explorer(
        draw,
        title=title,
        alt=describe,
        power=Slider("power", values=[0.5, 1, 2], value=1),
        sign=Choice("sign", options={"up": 1, "down": -1}),
        dots=Choice("dots", options={"yes": True, "no": False}, value=False),
    )


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two explorers and a playground on one page, with nothing of the book around them."""
    pieces = [explorer("First"), explorer("Second"), AttentionPlayground(TOKENS, X, *MAPS, title="By hand")]
    folder = tmp_path_factory.mktemp("page")
    (folder / "page.html").write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Page</title>'
        '<meta name="viewport" content="width=device-width">'
        "<style>html[data-theme=dark] { background: #14181e; color: #ced6dd; color-scheme: dark; "
        "--pst-color-text-base: #ced6dd; --pst-color-text-muted: #9ca4af; --pst-color-background: #14181e }</style></head>"
        f"<body><main><h1>Page</h1>{''.join(piece.html for piece in pieces)}</main></body></html>",
        encoding="utf-8",
    )
    return folder


@pytest.fixture
def page(browser, folder) -> Iterator:
    """The page, fresh; it must stay without errors and ask no other host."""
    with watch(browser, folder.as_uri()) as watched:
        yield watched.open("page")
        assert watched.problems == []


def forms(page, title: str):
    return page.locator("form.explorer", has=page.locator("legend", has_text=title))


def shown(form) -> tuple[str, str, str, str]:
    """What the reader of an explorer gets: picture, alt text, sentence, number beside the slider."""
    picture = form.locator("img")
    says, output = form.locator(".says").inner_text(), form.locator("output").inner_text()
    return picture.get_attribute("src"), picture.get_attribute("alt"), says, output


def test_every_position_of_the_controls_shows_its_own_frame(page):
    form = forms(page, "First")
    seen = set()
    for position, power in enumerate([0.5, 1, 2]):
        form.locator("input[type=range]").fill(str(position))
        for sign_name, sign in {"up": 1, "down": -1}.items():
            form.get_by_label(sign_name).check()
            for dots_name, dots in {"yes": True, "no": False}.items():
                form.get_by_label(dots_name).check()
                picture, alt, says, output = shown(form)
                assert alt == says == describe(power, sign, dots)
                assert output == f"{power:g}"
                seen.add(picture)
    assert len(seen) == 12


def test_an_explorer_starts_where_it_was_told_and_moves_by_keys_alone(page):
    form = forms(page, "First")
    first = shown(form)
    assert first[1] == describe(1, 1, False)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "range"
    page.keyboard.press("ArrowRight")
    second = shown(form)
    assert second[1] == describe(2, 1, False)
    assert second[0] != first[0]
    assert form.locator("input[type=range]").get_attribute("aria-valuetext") == "2"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert shown(form)[1] == describe(2, -1, False)


def test_explorers_on_one_page_do_not_move_each_other(page):
    before = shown(forms(page, "Second"))
    form = forms(page, "First")
    form.locator("input[type=range]").fill("2")
    form.get_by_label("down").check()
    assert shown(forms(page, "Second")) == before
    assert forms(page, "Second").get_by_label("up").is_checked()


def test_the_scripts_leave_no_global_name_behind(browser, folder, tmp_path):
    (tmp_path / "empty.html").write_text("<!doctype html><title>Empty</title>", encoding="utf-8")
    names = "() => Object.getOwnPropertyNames(window).sort()"
    with watch(browser, tmp_path.as_uri()) as empty, watch(browser, folder.as_uri()) as full:
        assert full.open("page").evaluate(names) == empty.open("empty").evaluate(names)


def test_without_scripts_the_first_frame_and_the_first_numbers_show(browser, folder):
    with watch(browser, folder.as_uri(), java_script_enabled=False) as watched:
        watched.page.goto(f"{folder.as_uri()}/page.html")
        form = forms(watched.page, "First")
        assert form.locator("img").get_attribute("alt") == describe(1, 1, False)
        assert "JavaScript" in form.inner_text()
        agrees(forms(watched.page, "By hand"), X)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1300])
def test_axe_finds_nothing_and_nothing_sticks_out(browser, folder, theme, width):
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        missing("axe-playwright-python is not installed: pip install -r requirements-dev.txt")
    with watch(browser, folder.as_uri(), width=width) as watched:
        page = watched.open("page")
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        result = Axe().run(page).response
        assert len(result["passes"]) > 5
        assert [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in result["violations"]] == []


def agrees(form, x) -> None:
    """Every number on the page is Python's, to the 3 decimals that the page shows."""
    for name, expected in attention_steps(x, *MAPS).items():
        cells = form.locator(f'[data-matrix="{name}"] td').all_inner_texts()
        on_page = np.array([float(cell.replace("−", "-")) for cell in cells]).reshape(expected.shape)
        np.testing.assert_allclose(on_page, expected, rtol=0, atol=0.00051, err_msg=name)


def in_the_plane(form) -> list[list[float]]:
    """Where the points stand, whatever the fields show."""
    return form.locator(".point").evaluate_all(
        "all => all.map(p => [p.transform.baseVal[0].matrix.e, -p.transform.baseVal[0].matrix.f])"
    )


def points(form) -> list[list[float]]:
    """Where the points stand, and that fields and spoken values say the same."""
    at = in_the_plane(form)
    typed = form.locator("input").evaluate_all("all => all.map(input => Number(input.value))")
    np.testing.assert_allclose(np.ravel(at), typed, atol=1e-6)
    for (first, second), point in zip(at, form.locator(".point").all(), strict=True):
        assert point.get_attribute("aria-valuetext") == f"x₁ {written(first, 2)}, x₂ {written(second, 2)}"
        assert float(point.get_attribute("aria-valuenow")) == pytest.approx(first, abs=1e-6)
    return at


def test_the_script_computes_what_python_computes_after_typing(page):
    form = forms(page, "By hand")
    agrees(form, X)
    typed = [[0.333, -2.75], [3.0, 0.0], [-0.0, 1.25], [-3.0, 2.999]]
    for token, vector in zip(TOKENS, typed, strict=True):
        for axis, value in zip("₁₂", vector, strict=True):
            form.get_by_label(f"{token}, x{axis}").fill(str(value))
    agrees(form, typed)
    np.testing.assert_allclose(points(form), typed, atol=1e-6)


def test_the_script_computes_what_python_computes_after_dragging(page):
    form = forms(page, "By hand")
    plane = form.locator("svg").first
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    unit = box["width"] / 6.9
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    x = np.array(X)
    for token, to in {1: [2.0, -1.0], 3: [0.4, 2.6]}.items():
        page.mouse.move(middle[0] + unit * x[token][0], middle[1] - unit * x[token][1])
        page.mouse.down()
        page.mouse.move(middle[0], middle[1], steps=3)
        page.mouse.move(middle[0] + unit * to[0], middle[1] - unit * to[1], steps=3)
        page.mouse.up()
        page.mouse.move(middle[0], middle[1])  # released: it stays where it was put
        x[token] = points(form)[token]
        np.testing.assert_allclose(x[token], to, atol=0.06)
        np.testing.assert_allclose(np.round(x[token] * 20), x[token] * 20, atol=1e-6, err_msg="steps of 0.05")
    np.testing.assert_allclose(points(form), x, atol=1e-6)
    agrees(form, x)
    assert form.locator(".says").inner_text().startswith("“down” attends most to")


def test_the_page_stays_where_it_is_when_a_point_at_its_edge_is_taken(page):
    form = forms(page, "By hand")
    point = form.locator(".point .reach").nth(1)
    height = page.viewport_size["height"]
    page.evaluate("by => window.scrollBy(0, by)", point.bounding_box()["y"] + 10 - height)  # only its upper part is in sight
    before = page.evaluate("window.scrollY")
    box = point.bounding_box()
    assert box["y"] < height < box["y"] + box["height"]
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 6)
    page.mouse.down()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "cat"
    assert page.evaluate("window.scrollY") == before
    page.mouse.up()


def test_the_script_computes_what_python_computes_after_arrow_keys(page):
    form = forms(page, "By hand")
    x = np.array(X)
    form.get_by_role("slider", name="cat").focus()
    before = page.evaluate("window.scrollY")
    assert before > 0, "the page can scroll up and down"
    for key, count in {"ArrowRight": 3, "ArrowDown": 5, "ArrowLeft": 1, "ArrowUp": 2}.items():
        for _ in range(count):
            page.keyboard.press(key)
    x[1] += [0.2, -0.3]
    np.testing.assert_allclose(points(form), x, atol=1e-6)
    agrees(form, x)
    assert page.evaluate("window.scrollY") == before
    assert form.locator(".says").inner_text().startswith("“cat” attends most to")


def test_coordinates_stay_inside_the_plane_however_they_are_moved(page):
    form = forms(page, "By hand")
    field = form.get_by_label("the, x₁")
    field.fill("17")
    assert in_the_plane(form)[0] == [3, 0.5]
    field.blur()
    assert field.input_value() == "3"
    form.get_by_role("slider", name="the").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert points(form)[0] == [3, 0.5]
    agrees(form, [[3, 0.5], *X[1:]])


def test_a_field_left_empty_gets_its_number_back(page):
    form = forms(page, "By hand")
    field = form.get_by_label("cat, x₂")
    field.fill("")
    agrees(form, X)
    field.blur()
    assert field.input_value() == "2"


def test_reset_brings_the_first_numbers_back(page):
    form = forms(page, "By hand")
    form.get_by_label("sat, x₂").fill("2.5")
    form.get_by_role("button", name="Reset").click()
    np.testing.assert_allclose(points(form), X, atol=1e-6)
    agrees(form, X)
