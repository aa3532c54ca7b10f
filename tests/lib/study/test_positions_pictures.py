"""The pictures of positions: hands stand where sine and cosine say, and every word of the picture is on the sheet."""

import math

import matplotlib.pyplot as plt
import pytest
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Annotation

from lib.study import plots
from lib.study import positions_pictures as pictures


@pytest.fixture(autouse=True)
def _close():
    plots.use_style()
    yield
    plt.close("all")


def hands(figure):
    """(angle, length) of every hand in the drawing, in order."""
    drawn = [text for text in figure.axes[0].texts if isinstance(text, Annotation)]
    steps = [(hand.xy[0] - hand.xyann[0], hand.xy[1] - hand.xyann[1]) for hand in drawn]
    return [(math.atan2(dy, dx), math.hypot(dx, dy)) for dx, dy in steps]


def words(figure):
    return " ".join(text.get_text() for text in figure.axes[0].texts)


def test_each_hand_has_turned_by_its_share_of_a_turn():
    wavelengths = [6, 24, 1000]
    for position in (0, 3, 9):
        figure = pictures.clocks(position, wavelengths)
        for (angle, _), wavelength in zip(hands(figure), wavelengths, strict=True):
            expected = 2 * math.pi * position / wavelength
            assert math.cos(angle - expected) == pytest.approx(1)
    assert "1,000" in words(figure)


def test_the_hands_of_a_row_of_clocks_do_not_touch_each_other():
    figure = pictures.clocks(1, [6] * 6)
    assert {round(length, 6) for _, length in hands(figure)} == {round(0.4 * 6.2 / 6, 6)}


def test_a_turned_pair_shows_four_hands_and_keeps_the_first_two():
    figure = pictures.turned_pair(1.0, 0.3, 0.5, -0.7, "m − n = 2")
    angles = [angle for angle, _ in hands(figure)]
    assert angles == pytest.approx([1.0, 0.3, 1.5, -0.4])
    assert "m − n = 2" in words(figure)


def test_the_drawings_have_every_word_within_the_sheet():
    sentences = ["dog", "bites", "man"], ["man", "bites", "dog"]
    for figure, expected in (
        (pictures.two_orders(*sentences), ["dog", "place 2", "the set\n{bites,  dog,  man}"]),
        (pictures.where_they_enter(), ["embeddings", "turn Q and K:\nrotary", "softmax, then blend V"]),
    ):
        for word in expected:
            assert word in words(figure)
        renderer = figure.canvas.get_renderer()
        sheet = figure.bbox
        for text in figure.axes[0].texts:
            box = text.get_window_extent(renderer)
            assert sheet.x0 <= box.x0
            assert box.x1 <= sheet.x1
            assert sheet.y0 <= box.y0
            assert box.y1 <= sheet.y1
        assert sum(isinstance(patch, FancyArrowPatch) for patch in figure.axes[0].patches) >= 2
