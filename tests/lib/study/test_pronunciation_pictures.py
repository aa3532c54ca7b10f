"""The pictures show the weights, letters and probabilities that they are given, at one fixed size."""

import math

import matplotlib.pyplot as plt
import numpy as np
import torch

from lib.study.alternatives import Alternative
from lib.study.pronunciation_pictures import attention, nothing, percent, pronounced

SAID = [Alternative(("N", "AY", "T"), math.log(0.7), 0.0), Alternative(("N", "IY", "T"), math.log(0.2), -1.0)]


def test_the_map_has_the_words_own_rows_and_columns_and_rings_at_the_marks():
    weights = torch.rand(6, 9)  # of a padded batch
    ax = attention(weights, "night", ["N", "AY", "T"], marks=[0, 1, 4])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["N", "AY", "T", "end"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["n", "i", "g", "h", "t", "end"]
    assert np.allclose(ax.images[0].get_array(), weights[:4, :6])
    assert list(zip(*ax.lines[0].get_data(), strict=True)) == [(0, 0), (1, 1), (4, 2)]
    plt.close("all")


def test_alternatives_stand_with_their_probabilities():
    figure = pronounced("night", torch.rand(4, 6), SAID)
    bars = figure.axes[1]
    assert [round(bar.get_width(), 6) for bar in bars.patches] == [0.7, 0.2]
    assert [text.get_text() for text in bars.texts] == ["N AY T  (70%)", "N IY T  (20%)"]
    assert tuple(figure.get_size_inches()) == tuple(nothing("no word").get_size_inches())
    plt.close("all")


def test_a_small_share_is_not_called_none():
    assert [percent(share) for share in (0.004, 0.006, 0.5, 1.0)] == ["<1%", "1%", "50%", "100%"]
