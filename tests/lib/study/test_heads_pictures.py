"""The pictures of the chapter on heads show the numbers they were given, in the place where they belong."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex

from lib.study import heads_pictures as pictures
from lib.study.plots import VERMILION


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_the_cut_names_each_head_in_all_four_bars_and_its_box():
    texts = [text.get_text() for text in pictures.cut_into_heads(3).axes[0].texts]
    assert [texts.count(str(i)) for i in (1, 2, 3, 4)] == [4, 4, 4, 0]
    assert sum(text.startswith("head ") for text in texts) == 3


def test_reach_shows_a_way_however_weak_and_no_way_where_there_is_none():
    influence = torch.tensor([[0.0, 1e-9], [5.0, 0.0]])
    ax = pictures.reach(influence, "title").axes[0]
    shown = np.asarray(ax.images[0].get_array())
    assert shown.tolist() == [[0, 1], [1, 0]]
    assert ax.get_title() == "title" or ax.get_title(loc="left") == "title"


def test_each_number_has_the_color_and_the_sign_of_its_head():
    owner = torch.tensor([[1, 2, 3], [3, 3, 1]])
    ax = pictures.landing(owner, "title").axes[0]
    assert [text.get_text() for text in ax.texts] == [str(head) for head in owner.flatten().tolist()]
    assert [text.get_position() for text in ax.texts][:4] == [(1, 1), (2, 1), (3, 1), (1, 2)]
    colors = {int(text.get_text()): to_hex(patch.get_facecolor()) for text, patch in zip(ax.texts, ax.patches, strict=True)}
    assert [colors[head] for head in owner.flatten().tolist()] == [to_hex(patch.get_facecolor()) for patch in ax.patches]
    assert len(set(colors.values())) == 3


def test_the_chosen_head_is_large_and_marked_among_the_small_ones():
    weights = torch.rand(3, 5, 5, generator=torch.Generator().manual_seed(0))
    figure = pictures.all_heads(weights, pictures.signs("a b"), 2, "layer 1, head 2")
    large, *small = figure.axes
    np.testing.assert_allclose(np.asarray(large.images[0].get_array()), weights[1])
    assert [tick.get_text() for tick in large.get_xticklabels()] == ["⊢", "a", "␣", "b", "⊣"]
    for i, ax in enumerate(small):
        np.testing.assert_allclose(np.asarray(ax.images[0].get_array()), weights[i])
        marked = to_hex(ax.spines["left"].get_edgecolor()).lower() == VERMILION.lower()
        assert marked == (i == 1)


def test_layers_stand_below_one_another_in_their_order():
    untrained, trained = torch.zeros(4, 3, 3), torch.ones(4, 3, 3)
    axes = pictures.beside({"untrained": untrained, "trained": trained}).axes
    assert [float(np.asarray(ax.images[0].get_array()).max()) for ax in axes] == [0] * 4 + [1] * 4
    assert [ax.get_ylabel() for ax in axes if ax.get_ylabel()] == ["untrained", "trained"]
    assert [ax.get_title() or ax.get_title(loc="left") for ax in axes[:5]] == ["head 1", "head 2", "head 3", "head 4", ""]


def test_each_head_is_a_point_at_its_measures():
    table = pd.DataFrame({"seed": [0, 0, 1], "layer": [1, 2, 1], "distance": [1.0, 2.0, 3.0], "entropy": [0.5, 1.0, 1.5]})
    figure = pictures.look_of_heads(table.iloc[:0], table, pd.Series({"distance": 9.0, "entropy": 3.3}))
    points = np.concatenate([points.get_offsets() for points in figure.axes[1].collections])
    assert sorted(map(tuple, points.tolist())) == [(1.0, 0.5), (2.0, 1.0), (3.0, 1.5)]
    assert figure.axes[0].get_lines()[0].get_xydata().tolist() == [[9.0, 3.3]]
