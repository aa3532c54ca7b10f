"""The explorer: both faces from one pure function, self-contained, small and the same on every run."""

import base64
import html
import json
import re
from html.parser import HTMLParser
from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from lib.study.explorer import Choice, Explorer, Slider, Text


def draw(power, sign):
    figure = plt.figure(figsize=(3, 2))
    x = np.linspace(0, 1, 9)
    figure.add_axes((0.1, 0.1, 0.8, 0.8), frameon=False, xticks=[], yticks=[]).plot(x, (1 if sign == "up" else -1) * x**power)
    return figure


def describe(power, sign):
    return f"x to the power {power:g}, pointing {sign}."


def make(title="Powers", **changes) -> Explorer:
    given = {
        "draw": draw,
        "alt": describe,
        "power": Slider("power p", values=[0.5, 1, 2], value=1, live_values=[0.5, 0.75, 1, 1.5, 2]),
        "sign": Choice("sign", options=["up", "down"]),
    }
    return Explorer(title=title, **(given | changes))


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    """One for all tests that only look."""
    return make()


def data(explorer: Explorer) -> dict:
    """The frames that the script of the static face gets."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', explorer.html, re.DOTALL)[1])


class Tags(HTMLParser):
    """Every start tag with its attributes; unclosed tags are an error."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("input", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.found if name == tag]


def test_it_has_two_faces_and_a_short_text_without_ids(explorer):
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    assert bundle["text/plain"] == repr(explorer) == "Explorer('Powers', 6 frames)"
    assert bundle["text/html"] == explorer.html


def test_every_combination_is_a_frame_with_its_own_picture_and_words(explorer):
    frames = data(explorer)
    assert frames["texts"] == [describe(power, sign) for power in (0.5, 1, 2) for sign in ("up", "down")]
    assert len(set(frames["pictures"])) == 6
    assert frames["labels"] == [["0.5", "1", "2"], ["up", "down"]]


def test_the_first_picture_is_that_of_the_values_at_the_start():
    explorer = make(sign=Choice("sign", options=["up", "down"], value="down"))
    frames, tags = data(explorer), Tags(explorer.html)
    (image,) = tags.all("img")
    assert image["alt"] == describe(1, "down")
    assert image["src"] == frames["pictures"][frames["texts"].index(describe(1, "down"))]
    assert [radio["value"] for radio in tags.all("input") if "checked" in radio] == ["1"]


def test_two_runs_give_identical_html(explorer):
    assert explorer.html == explorer.html


def test_it_is_self_contained_and_has_no_ids_that_could_clash(explorer):
    html = explorer.html
    assert re.findall(r"https?:|\"//|@import|url\(", re.sub("base64,[A-Za-z0-9+/=]+", "", html)) == []
    tags = Tags(html)
    for tag, attributes in tags.found:
        assert "id" not in attributes, tag
        assert tag not in ("link", "iframe")
        assert tag != "script" or "src" not in attributes
    (image,) = tags.all("img")
    assert image["src"].startswith("data:image/png;base64,")


def test_every_control_is_labeled_and_works_by_keyboard(explorer):
    html = explorer.html
    tags = Tags(html)
    slider, *radios = tags.all("input")
    assert (slider["type"], slider["min"], slider["max"], slider["value"]) == ("range", "0", "2", "1")
    assert slider["aria-valuetext"] == "1"
    assert [radio["type"] for radio in radios] == ["radio", "radio"]
    assert len({radio["name"] for radio in radios}) == 1
    assert not any("tabindex" in attributes for _, attributes in tags.found)
    assert re.search(r"<label><span>power p</span><input type=\"range\"", html)
    assert "<legend>sign</legend>" in html
    assert "<legend>Powers</legend>" in html
    assert 'aria-live="polite"' in html


def test_texts_cannot_break_out_of_the_page():
    nasty = "</script><b> & \"quotes\" 'single'"
    explorer = make(
        title=nasty,
        alt=lambda power, sign: nasty + f"{power}{sign}",
        power=Slider(nasty, values=[1, 2]),
        sign=Choice(nasty, options=[nasty, "down"]),
    )
    tags = Tags(explorer.html)
    assert not tags.all("b")
    assert tags.all("img")[0]["alt"] == nasty + "1" + nasty
    assert data(explorer)["texts"][0] == nasty + "1" + nasty


def test_pictures_are_marked_so_that_a_sanitizer_can_blank_them(explorer):
    def blank(explorer: Explorer) -> str:
        return re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "PICTURE", explorer.html)

    def thicker(power, sign):
        figure = draw(power, sign)
        figure.axes[0].lines[0].set_linewidth(5)
        return figure

    assert explorer.html != make(draw=thicker).html
    assert blank(explorer) == blank(make(draw=thicker))


def test_the_image_keeps_its_place_on_the_page(explorer):
    (image,) = Tags(explorer.html).all("img")
    size = Image.open(BytesIO(base64.b64decode(image["src"].partition(",")[2]))).size
    assert (int(image["width"]), int(image["height"])) == size == (288, 192)


def test_moving_a_live_control_moves_picture_and_words():
    explorer = make()
    before = explorer._picture.value, explorer._text.value
    explorer._controls["power"].value = 0.75  # only the live grid has it
    after = explorer._picture.value, explorer._text.value
    assert before[0] != after[0]
    assert describe(1, "up") in before[1]
    assert describe(0.75, "up") in after[1]
    assert f'alt="{describe(0.75, "up")}"' in after[0]
    explorer._controls["sign"].value = "down"
    assert describe(0.75, "down") in explorer._text.value


def test_live_and_static_face_show_the_same_picture_for_the_same_values():
    explorer = make()
    frames = data(explorer)
    for power in (0.5, 1, 2):
        for sign in ("up", "down"):
            explorer._controls["power"].value, explorer._controls["sign"].value = power, sign
            frame = frames["texts"].index(describe(power, sign))
            assert frames["pictures"][frame] in explorer._picture.value


def test_live_controls_carry_their_labels_and_the_static_grid_stays_modest(explorer):
    slider, choice = explorer._controls.values()
    assert [label for label, _ in slider.options] == ["0.5", "0.75", "1", "1.5", "2"]
    assert (slider.description, choice.description) == ("power p", "sign")
    assert len(data(explorer)["texts"]) == 6


def test_a_choice_can_stand_for_other_values_than_its_texts():
    seen = []
    explorer = Explorer(
        lambda scaled: seen.append(scaled) or plt.figure(figsize=(1, 1)),
        title="Scale",
        alt=lambda scaled: f"scaled: {scaled}",
        scaled=Choice("scores", options={"as they are": False, "divided by √d_k": True}, value=True),
    )
    assert seen[:2] == [False, True]
    assert data(explorer)["labels"] == [["as they are", "divided by √d_k"]]
    assert "scaled: True" in explorer._text.value


def test_a_text_is_a_choice_on_the_page_and_a_field_in_the_notebook():
    def draw_length(word):
        return plt.figure(figsize=(1 + len(word) / 10, 1))

    explorer = Explorer(
        draw_length, title="Words", alt=lambda word: f"<{word}>", word=Text("a word", options=["cat", "horse"], value="horse")
    )
    assert data(explorer)["texts"] == ["<cat>", "<horse>"]
    assert [radio["type"] for radio in Tags(explorer.html).all("input")] == ["radio", "radio"]
    field = explorer._controls["word"]
    assert (field.value, field.description, field.continuous_update) == ("horse", "a word", False)
    for typed in ("zebra & co", ""):  # what no frame shows
        field.value = typed
        assert html.escape(f"<{typed}>") in explorer._text.value
    with pytest.raises(ValueError, match="starts at 'cow'"):
        Text("a word", options=["cat", "horse"], value="cow")


def test_numbers_are_written_in_the_given_format_with_a_true_minus():
    slider = Slider("x", values=np.array([-1.5, 0.25]), format=".2f")
    assert [text for text, _ in slider.options] == ["−1.50", "0.25"]
    assert all(type(value) is float for value in slider.values)


def test_no_figure_stays_open_even_when_drawing_fails():
    plt.close("all")
    kept = plt.figure()
    make()._controls["power"].value = 2
    assert plt.get_fignums() == [kept.number]

    def faulty(power, sign):
        figure = draw(power, sign)
        if power == 2 and sign == "down":
            raise ZeroDivisionError("in a corner of the grid")
        return figure

    with pytest.raises(ZeroDivisionError):
        make(draw=faulty)
    assert plt.get_fignums() == [kept.number]


def test_a_page_that_is_too_large_is_refused_with_numbers_and_remedy():
    def noise(power, sign):
        figure = plt.figure(figsize=(3, 2))
        figure.figimage(np.random.default_rng(int(power)).random((192, 288, 3)))
        return figure

    with pytest.raises(
        ValueError, match=r"'Powers' takes \d{4} kB.* 6 frames of 2\d\d\.\d kB; the limit is 400 kB.*live_values.*dpi"
    ):
        make(draw=noise)


def test_a_draw_that_forgets_its_figure_is_told_so():
    with pytest.raises(TypeError, match=r"return figure.*got NoneType for \{'power': 0.5, 'sign': 'up'\}"):
        make(draw=lambda power, sign: None)


@pytest.mark.parametrize("function", ["draw", "alt"])
def test_controls_that_do_not_fit_the_function_are_named(function):
    with pytest.raises(TypeError, match=rf"{function}\(power\) does not fit the controls \(power, sign\)"):
        make(**{function: lambda power: None})
    with pytest.raises(TypeError, match=r"power must be a Slider or a Choice, got list"):
        make(power=[1, 2])


def test_values_that_cannot_work_are_named():
    with pytest.raises(ValueError, match=r"'τ' starts at 3, which is none of its values \[1, 2\]"):
        Slider("τ", values=[1, 2], value=3)
    with pytest.raises(ValueError, match=r"'τ' starts at 2, which is none of its values \[1, 1.5\]"):
        Slider("τ", values=[1, 2], value=2, live_values=[1, 1.5])
    with pytest.raises(ValueError, match=r"'τ' has a value more than once: \[1\]"):
        Slider("τ", values=[1, 2, 1])
    with pytest.raises(ValueError, match="'keys' has no values"):
        Choice("keys", options=[])
    with pytest.raises(ValueError, match=r"'keys' starts at 'here', which is none of its values \['near', 'far'\]"):
        Choice("keys", options=["near", "far"], value="here")


@pytest.mark.parametrize(
    ("options", "orientation"), [(["one", "two"], "horizontal"), ([f"a long name {i}" for i in range(9)], "vertical")]
)
def test_live_options_that_fill_more_than_a_line_stand_below_each_other(options, orientation):
    assert Choice("kind", options).widget().orientation == orientation
