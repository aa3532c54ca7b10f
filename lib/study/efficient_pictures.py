"""Pictures of what attention costs and of how far it sees: patterns, reach over layers, bills, and curves over length."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator
from torch import Tensor

from lib import masks
from lib.study import costs, mask_pictures, plots, reach
from lib.study.costs import FORMS

# form -> color, dash, marker; the same in every picture.
STYLES = {
    "eager": (plots.VERMILION, "--", "o"),
    "torch": (plots.INK, "-", "s"),
    "tiled": (plots.BLUE, "-", "^"),
    "windowed": (plots.GREEN, "-.", "v"),
    "strided": (plots.ORANGE, ":", "D"),
    "segmented": (plots.PURPLE, (0, (5, 1, 1, 1)), "P"),
    "linear": (plots.SKY, (0, (3, 1)), "X"),
}

RECALL_STYLES = {
    "full": STYLES["torch"],
    "window + stride": STYLES["eager"],
    "segmented": STYLES["segmented"],
    "windowed": STYLES["windowed"],
    "strided": STYLES["strided"],
    "linear (elu)": STYLES["linear"],
    "linear (random)": STYLES["tiled"],
}


def amount(value: float, unit: str, base: int = 1000) -> str:
    """A number with a prefix, in three digits: 1.5 TFLOP, 320 MB."""
    prefixes = ("", "k", "M", "G", "T", "P", "E", "Z")
    power = 0
    while value >= 999.5 and power < len(prefixes) - 1:
        value, power = value / base, power + 1
    digits = 0 if value >= 99.5 or value == round(value) else 1 if value >= 9.95 else 2
    return f"{value:.{digits}f} {prefixes[power]}{unit}"


def draw_patterns(n: int = 9, part: int = 3) -> Figure:
    """Six patterns side by side. What is met as one, a summary or a sum, is one paler bar."""
    pattern = reach.patterns(n, part)
    shown = {
        "full": pattern["full"],
        f"window of {part}": pattern["window"],
        f"stride {part}": pattern["stride"],
        "window and stride": pattern["window + stride"],
        f"segments of {part}": masks.blocks(n, part, causal=True),
        "linear": pattern["full"].new_zeros(n, n),
    }
    figure = mask_pictures.gallery(shown)
    segments, linear = figure.axes[4:]
    for row in range(n):
        for begin in range(0, row // part * part, part):
            _bar(segments, row, begin, part)
        _bar(linear, row, 0, row + 1)
    return figure


def draw_reach(name: str, layers: int, *, n: int = 16, part: int = 4) -> Figure:
    """One layer's links, those to summaries paler, and what all queries have seen after so many layers."""
    pattern = reach.patterns(n, part)[name]
    seen = reach.after_layers(pattern, layers)
    figure = plt.figure(figsize=(6.3, 3.5))
    figure.set_layout_engine("none")  # placed by hand: many such pictures are drawn at once
    axes = [figure.add_axes((x, 0.09, 0.41, 0.73)) for x in (0.09, 0.57)]
    links = int(reach.links_per_row(name, pattern, part)[-1])
    for ax, mask, title, color in (
        (axes[0], pattern, f"one layer: {links} scores\nin the last row", plots.BLUE),
        (axes[1], seen, f"after {layers}: the last row\nhas seen {int(seen[-1].sum())} of {n}", plots.GREEN),
    ):
        mask_pictures.cells(ax, mask, title, rows=_every(n, 3), columns=_every(n, 3), color=color)
        ax.set_xlabel("token", color=plots.GRAY, fontsize=11)
        ax.xaxis.set_label_position("bottom")
    axes[0].set_ylabel("query", color=plots.GRAY, fontsize=11)
    for row in range(n // part if name == "segments" else 0):  # paler: met as summaries
        shape = {"width": row * part, "height": part, "facecolor": "white", "alpha": 0.6}
        axes[0].add_patch(Rectangle((-0.5, row * part - 0.5), **shape))
    return figure


def draw_bill(model: costs.Model, length: int, batch: int) -> Figure:
    """The bill of every form, in bfloat16, and how much more it is in float32; a dashed line for the rest of the model."""
    half, full = (
        {form: costs.bill(form, model, length, batch=batch, bytes_per_number=size) for form in FORMS} for size in (2, 4)
    )
    figure = plt.figure(figsize=(6.4, 3.5))
    figure.set_layout_engine("none")
    axes = [figure.add_axes((0.165 + 0.28 * i, 0.09, 0.265, 0.76)) for i in range(3)]
    for ax, what, title, unit in zip(
        axes, ("flops", "saved", "cache"), ("products, FLOP", "kept to train", "cache to write"), ("", "B", "B"), strict=True
    ):
        values = np.array([getattr(half[form], what) for form in FORMS], dtype=float)
        larger = np.array([getattr(full[form], what) for form in FORMS], dtype=float)
        low = values.min() / 30
        ax.barh(FORMS, larger - low, left=low, color="white", edgecolor=plots.GRAY, linewidth=1)
        ax.barh(FORMS, values - low, left=low, color=[STYLES[form][0] for form in FORMS], alpha=0.55)
        for row, value in enumerate(values):
            style = {"ha": "right", "va": "center", "fontsize": 11, "transform": ax.get_yaxis_transform()}
            ax.text(1, row, amount(value, unit), **style)
        rest = costs.rest_flops(model, length, batch=batch) if what == "flops" else 0
        if rest:
            ax.axvline(rest, color=plots.INK, linestyle="--", linewidth=1.6)
            below = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "center", "va": "top"}
            ax.annotate("all the rest", (rest, 0), (0, -3), fontsize=11, annotation_clip=False, **below)
        right = low * (max(larger.max(), rest) / low) ** 1.75  # the numbers stand right of the bars and the line
        ax.set(xscale="log", xlim=(low, right), ylim=(len(FORMS) - 0.4, -0.6))
        ax.tick_params(axis="y", length=0, labelleft=what == "flops")
        ax.set_title(f"{title}\n(log scale)", fontsize=11, fontweight="normal")
        ax.xaxis.set_major_locator(FixedLocator([]))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.grid(False)
    return figure


def draw_lengths(panels: Mapping[str, pd.DataFrame], labels: Sequence[str]) -> Figure:
    """Curves over length, one panel above the other: each table has a row for each length and a column for each form."""
    figure, axes = plt.subplots(len(panels), 1, figsize=(6.4, 3.7 * len(panels)), sharex=True, squeeze=False)
    for ax, (title, table), label in zip(axes[:, 0], panels.items(), labels, strict=True):
        for form in table:
            color, dash, marker = STYLES[form]
            drawn = table[form].dropna()
            ax.plot(drawn.index, drawn, color=color, linestyle=dash, marker=marker, markersize=7, label=form)
        ax.set(xscale="log", yscale="log", ylabel=label)
        ax.set_title(title)
        _lengths_below(ax, table.index)
    axes[-1, 0].set_xlabel("length n (tokens)")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4)
    return figure


def draw_recall(by_distance: pd.DataFrame, by_pairs: pd.DataFrame, guess: float) -> Figure:
    """Accuracy over distance and over the number of pairs, mean and range over seeds as bars of error, side by side.

    Args:
        by_distance: columns form, seed, farthest, accuracy.
        by_pairs: columns form, seed, pairs, accuracy. A form without rows is left out, in both.
        guess: accuracy of a guess.
    """
    figure, axes = plt.subplots(1, 2, figsize=(6.4, 4.2), sharey=True, width_ratios=(3, 2))
    for ax, table, column in zip(axes, (by_distance, by_pairs), ("farthest", "pairs"), strict=True):
        places = sorted(table[column].unique())
        for form, (color, dash, marker) in RECALL_STYLES.items():
            own = table[table["form"] == form]
            if own.empty:
                continue
            runs = own.pivot(index="seed", columns=column, values="accuracy")[places]
            x = np.arange(len(places)) + 0.03 * (list(RECALL_STYLES).index(form) - 3)
            mean, ends = runs.mean(), (runs.min(), runs.max())
            style = {"color": color, "linestyle": dash, "marker": marker, "markersize": 7}
            ax.plot(x, mean, label=form, **style)
            ax.errorbar(x, mean, (mean - ends[0], ends[1] - mean), fmt="none", ecolor=color, capsize=3, elinewidth=1.4)
        ax.axhline(guess, color=plots.GRAY, linewidth=1.2)
        ax.set(ylim=(0, 1.03))
        labels = [f"{a + 1}–{b}" for a, b in zip([0, *places], places, strict=False)] if column == "farthest" else places
        ax.set_xticks(range(len(places)), labels, rotation=35 if column == "farthest" else 0, fontsize=11)
    axes[0].set(ylabel="right answers (share)", xlabel="distance to the pair (tokens)")
    axes[1].set(xlabel="pairs in the text")
    place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes[1].annotate("guess", (1, guess), (4, 0), va="center", fontsize=11, color=plots.GRAY, **place)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure


def draw_weights(rows: Mapping[str, Tensor], asked: int) -> Figure:
    """Weights of one query over its keys, a panel for each form; the key asked for is filled."""
    figure, axes = plt.subplots(1, len(rows), figsize=(6.4, 2.8), sharey=True)
    for ax, (name, weights) in zip(axes, rows.items(), strict=True):
        colors = [plots.VERMILION if j == asked else plots.SKY for j in range(len(weights))]
        ax.bar(range(len(weights)), weights.tolist(), color=colors, edgecolor=plots.GRAY, linewidth=0.6)
        ax.set_title(name, fontsize=12)
        ax.set(xlabel="key", ylim=(0, 1))
        ax.grid(axis="x", visible=False)
    axes[0].set_ylabel("weight")
    return figure


def _bar(ax: Axes, row: int, begin: int, width: int) -> None:
    """Keys of a row that are met as one."""
    shape = {"facecolor": plots.SKY, "alpha": 0.75, "edgecolor": plots.BLUE, "zorder": 3}
    ax.add_patch(Rectangle((begin - 0.42, row - 0.34), width - 0.16, 0.68, **shape))


def _lengths_below(ax: Axes, lengths: Sequence[int]) -> None:
    """Every length as a tick, the larger ones in thousands."""
    ax.set_xticks(list(lengths), [str(n) if n < 1024 else f"{n // 1024}k" for n in lengths])
    ax.xaxis.set_minor_locator(NullLocator())


def _every(n: int, step: int) -> list[str]:
    return [str(i) if i % step == 0 else "" for i in range(n)]
