"""The static face of the explorer in a browser, on a page of its own, and what holds for every explorer and playground."""

import matplotlib.pyplot as plt
import pytest
from browser import missing, watch
from faces_page import describe, forms

from lib.study.explorer import Explorer, Slider


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


def test_the_scripts_leave_no_global_name_behind(browser, faces, tmp_path):
    (tmp_path / "empty.html").write_text("<!doctype html><title>Empty</title>", encoding="utf-8")
    names = "() => Object.getOwnPropertyNames(window).sort()"
    with watch(browser, tmp_path.as_uri()) as empty, watch(browser, faces.as_uri()) as full:
        assert full.open("page").evaluate(names) == empty.open("empty").evaluate(names)


def test_without_scripts_the_first_frame_shows(browser, faces):
    with watch(browser, faces.as_uri(), java_script_enabled=False) as watched:
        watched.page.goto(f"{faces.as_uri()}/page.html")
        form = forms(watched.page, "First")
        assert form.locator("img").get_attribute("alt") == describe(1, 1, False)
        assert "JavaScript" in form.inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1300])
def test_axe_finds_nothing_and_nothing_sticks_out(browser, faces, theme, width):
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        missing("axe-playwright-python is not installed: pip install -r requirements-dev.txt")
    with watch(browser, faces.as_uri(), width=width) as watched:
        page = watched.open("page")
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        result = Axe().run(page).response
        assert len(result["passes"]) > 5
        assert [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in result["violations"]] == []


@pytest.mark.parametrize("width", [400, 1300])
def test_the_number_stands_beside_its_slider(browser, faces, width):
    with watch(browser, faces.as_uri(), width=width) as watched:
        form = forms(watched.open("page"), "First")
        slider, number = (form.locator(part).first.bounding_box() for part in ("input[type=range]", "output"))
        assert number["x"] >= slider["x"] + slider["width"]
        assert abs(number["y"] + number["height"] / 2 - slider["y"] - slider["height"] / 2) < 6


@pytest.mark.parametrize("width", [400, 1300])
def test_what_is_touched_is_large_enough_for_a_finger(browser, faces, width):
    with watch(browser, faces.as_uri(), width=width) as watched:
        page = watched.open("page")
        page.evaluate("document.querySelectorAll('details').forEach(part => (part.open = true))")
        for target in page.locator("form.explorer :is(input, button, summary)").all():
            box = target.bounding_box()
            assert min(box["width"], box["height"]) >= 24, target.evaluate("e => e.outerHTML")


def test_a_wide_picture_scrolls_in_its_box_on_a_phone_and_a_key_can_do_it(browser, tmp_path):
    wide = Explorer(
        lambda power: plt.figure(figsize=(6.4, 3)), title="Wide", alt=lambda power: f"{power}", power=Slider("power", [1, 2])
    )
    (tmp_path / "page.html").write_text(
        f'<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">{wide.html}', encoding="utf-8"
    )
    with watch(browser, tmp_path.as_uri(), width=400) as watched:
        page = watched.open("page")
        box = page.locator(".picture")
        assert page.locator("img").bounding_box()["width"] == 480
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.locator("input").focus()
        page.keyboard.press("Tab")
        assert box.evaluate("e => e === document.activeElement")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("document.querySelector('.picture').scrollLeft > 0")
        page.set_viewport_size({"width": 900, "height": 900})
        page.wait_for_function("!document.querySelector('.picture').hasAttribute('tabindex')")
