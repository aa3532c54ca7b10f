"""The static face of the playground in a browser: script and Python must agree."""

import numpy as np
import pytest
from browser import watch
from faces_page import MAPS, TOKENS, X, forms

from lib.study.playground import attention_steps
from lib.study.playground_planes import LIMIT, name_places, unit_of, vector_marks, written


def agrees(form, x) -> None:
    """Every number on the page is Python's, to the 2 decimals that the page shows."""
    for name, expected in attention_steps(x, *MAPS).items():
        cells = form.locator(f'[data-matrix="{name}"] td').all_inner_texts()
        on_page = np.array([float(cell.replace("−", "-")) for cell in cells]).reshape(expected.shape)
        np.testing.assert_allclose(on_page, expected, rtol=0, atol=0.0051, err_msg=name)


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
        assert point.get_attribute("aria-valuetext") == f"x₁ {written(first)}, x₂ {written(second)}"
        assert float(point.get_attribute("aria-valuenow")) == pytest.approx(first, abs=1e-6)
    return at


def transforms(form, selector: str) -> np.ndarray:
    """Where marks stand in the plane, upward positive."""
    moved = "all => all.map(mark => [mark.transform.baseVal[0].matrix.e, -mark.transform.baseVal[0].matrix.f])"
    return np.array(form.locator(selector).evaluate_all(moved))


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
    unit = box["width"] / 7.7  # as wide as the drawing, with the numbers at its left
    middle = box["x"] + unit * 4.2, box["y"] + unit * 3.5
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


@pytest.mark.parametrize("x", [X, [[2, 0], [0, 1], [1, 0], [0, 2]], [[3.0, 3.0], [-3.0, 3.0], [-2.9, 2.8], [0.0, 0.0]]])
def test_values_outputs_and_names_stand_where_python_puts_them(page, x):
    form = forms(page, "By hand")
    for token, vector in zip(TOKENS, x, strict=True):
        for axis, value in zip("₁₂", vector, strict=True):
            form.get_by_label(f"{token}, x{axis}").fill(str(value))
    steps = attention_steps(x, *MAPS)
    unit = unit_of(steps["value"])
    value, output = steps["value"] / unit, steps["output"] / unit
    assert max(np.abs(value).max(), np.abs(output).max()) <= LIMIT
    np.testing.assert_allclose(transforms(form, ".value"), value, atol=1e-6)
    np.testing.assert_allclose(transforms(form, ".output"), output, atol=1e-6)
    for selector, marks in {".point": vector_marks(x), ".output": np.concatenate([output, value])}.items():
        names = form.locator(f"{selector} .name").evaluate_all(
            "all => all.map(name => [Number(name.getAttribute('x')), -Number(name.getAttribute('y'))])"
        )
        np.testing.assert_allclose(names, name_places(TOKENS, marks), atol=1e-6, err_msg=selector)
    ticks = form.locator("svg").nth(1).locator(".tick").all_text_contents()
    assert sorted(ticks) == sorted(2 * [written(at * unit, 0) for at in (-2, 0, 2)])


def test_a_focused_point_has_a_ring_and_no_box_around_the_plane(page):
    point = forms(page, "By hand").get_by_role("slider", name="cat")
    ring = "e => getComputedStyle(e.querySelector('.reach')).stroke"
    assert point.evaluate(ring) == "none"
    point.focus()
    page.keyboard.press("ArrowUp")
    assert point.evaluate("e => e.matches(':focus-visible')")
    assert point.evaluate("e => getComputedStyle(e).outlineStyle") == "none"
    assert point.evaluate(ring) != "none"


@pytest.mark.parametrize(("width", "is_open"), [(400, False), (1300, True)])
def test_steps_before_the_weights_are_folded_on_a_phone_only(browser, faces, width, is_open):
    with watch(browser, faces.as_uri(), width=width) as watched:
        form = forms(watched.open("page"), "By hand")
        assert form.locator("details").evaluate_all("all => all.map(part => part.open)") == [is_open] * 3
        assert form.locator('[data-matrix="weights"]').is_visible()
        plane, says = form.locator("figure").first.bounding_box(), form.locator(".says").bounding_box()
        assert 0 <= says["y"] - plane["y"] - plane["height"] < 40


def test_without_scripts_the_first_numbers_show_unfolded(browser, faces):
    with watch(browser, faces.as_uri(), width=400, java_script_enabled=False) as watched:
        watched.page.goto(f"{faces.as_uri()}/page.html")
        agrees(forms(watched.page, "By hand"), X)
