"""Pictures of costs and reach show the numbers that they are given."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch

from lib.study import costs, efficient_pictures


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def test_amounts_have_three_digits_and_a_prefix():
    assert [efficient_pictures.amount(x, "B") for x in (7, 999, 1500, 15_260, 152_600, 999_600, 2.5e12)] == [
        "7 B", "999 B", "1.50 kB", "15.3 kB", "153 kB", "1.00 MB", "2.50 TB",
    ]  # fmt: skip


def test_what_is_met_as_one_is_one_bar():
    figure = efficient_pictures.draw_patterns(9, 3)
    bars = [sorted(p.get_width() for p in ax.patches) for ax in figure.axes]
    assert bars[:4] == [[], [], [], []]
    assert len(bars[4]) == 9  # rows 3–5 meet one summary, rows 6–8 two
    assert bars[5] == pytest.approx([row + 1 - 0.16 for row in range(9)])


def test_reach_says_how_many_the_last_row_has_seen():
    figure = efficient_pictures.draw_reach("window", 3)
    titles = [ax.get_title(loc="left") or ax.get_title() for ax in figure.axes]
    assert titles == ["one layer: 4 scores\nin the last row", "after 3: the last row\nhas seen 10 of 16"]


def test_a_bill_writes_the_amount_of_every_form():
    model = costs.Model(12, 768, 12, 3)
    figure = efficient_pictures.draw_bill(model, 2048, 4)
    for ax, what, unit in zip(figure.axes, ("flops", "saved", "cache"), ("", "B", "B"), strict=True):
        wanted = [
            efficient_pictures.amount(getattr(costs.bill(form, model, 2048, batch=4), what), unit) for form in costs.FORMS
        ]
        rest = ["all the rest"] if what == "flops" else []
        assert [text.get_text() for text in ax.texts] == wanted + rest
        assert ax.get_title(loc="left").endswith("(log scale)") or ax.get_title().endswith("(log scale)")


def test_the_numbers_of_a_bill_stand_right_of_bars_and_line():
    figure = efficient_pictures.draw_bill(costs.Model(32, 4096, 32), 131_072, 16)
    figure.canvas.draw()
    for ax in figure.axes:
        numbers = [text for text in ax.texts if text.get_text() != "all the rest"]
        begin = min(text.get_window_extent().x0 for text in numbers)
        drawn = [patch.get_window_extent().x1 for patch in ax.patches] + [line.get_window_extent().x1 for line in ax.lines]
        assert max(drawn) < begin


def test_curves_over_length_skip_what_was_left_out():
    table = pd.DataFrame({"eager": [1.0, None], "tiled": [2.0, 4.0]}, index=[128, 256])
    figure = efficient_pictures.draw_lengths({"time": table, "memory": table}, ["ms", "MB"])
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [1, 2]
    assert [text.get_text() for text in figure.axes[1].get_xticklabels()] == ["128", "256"]


def test_the_key_asked_for_has_its_own_color():
    figure = efficient_pictures.draw_weights({"a": torch.tensor([0.2, 0.8]), "b": torch.tensor([0.5, 0.5])}, 1)
    colors = [[bar.get_facecolor() for bar in ax.patches] for ax in figure.axes]
    assert colors[0][0] != colors[0][1]
    assert [bar.get_height() for bar in figure.axes[0].patches] == pytest.approx([0.2, 0.8])


def test_recall_has_a_line_for_each_form_and_names_the_cells_of_distance():
    forms = efficient_pictures.RECALL_STYLES
    near = pd.DataFrame(
        [{"form": f, "seed": s, "farthest": d, "accuracy": 0.5} for f in forms for s in (0, 1) for d in (16, 32)]
    )
    pairs = near.rename(columns={"farthest": "pairs"})
    figure = efficient_pictures.draw_recall(near, pairs, 1 / 16)
    assert figure.axes[0].get_legend_handles_labels()[1] == list(forms)
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["1–16", "17–32"]
    assert [text.get_text() for text in figure.axes[1].get_xticklabels()] == ["16", "32"]
    some = [table[table["form"] == "full"] for table in (near, pairs)]
    assert efficient_pictures.draw_recall(*some, 1 / 16).axes[0].get_legend_handles_labels()[1] == ["full"]
