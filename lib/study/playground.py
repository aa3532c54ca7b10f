"""The attention playground: a few words of two numbers each, which the reader moves, and every step from them to the output.

Like the explorer it has two faces. In the static book a script recomputes the steps as a point is dragged, moved by the arrow
keys or typed; in a live notebook numbers are typed and Python computes. `attention_steps` is the formula; the script repeats
it, and a browser test holds the two together.
"""

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from lib.study.faces import img, picture
from lib.study.playground_page import TEXTS, page, step_tables, styled
from lib.study.playground_planes import EDGE, LIMIT, TICKS, name_places, unit_of, vector_marks, written
from lib.study.plots import COLORS, GRAY, PALE


def attention_steps(x, w_q, w_k, w_v) -> dict[str, np.ndarray]:
    """One head of self-attention, step by step, with Q = X·W_q and so on.

    Args:
        x: (n, d) word vectors.
        w_q, w_k: (d, d_k) maps, the transposes of the weights of `lib.attention.SelfAttention`.
        w_v: (d, d_v).

    Returns:
        query and key (n, d_k), value (n, d_v), scores (n, n), scaled (n, n), weights (n, n), output (n, d_v), in float64.

    Source: Vaswani et al. 2017, equation 1.
    """
    x, w_q, w_k, w_v = (np.asarray(matrix, dtype=float) for matrix in (x, w_q, w_k, w_v))
    query, key, value = x @ w_q, x @ w_k, x @ w_v
    scores = query @ key.T
    scaled = scores / np.sqrt(w_k.shape[1])
    parts = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    weights = parts / parts.sum(axis=1, keepdims=True)
    return {
        "query": query,
        "key": key,
        "value": value,
        "scores": scores,
        "scaled": scaled,
        "weights": weights,
        "output": weights @ value,
    }


class AttentionPlayground(widgets.VBox):
    """Self-attention over a few two-dimensional words that the reader moves.

    Args:
        tokens: the n words, at most 6 of them.
        x: (n, 2) vectors at the start, within −3 … 3.
        w_q, w_k, w_v: (2, 2) maps; Q = X·W_q.
        title: what stands above.

    Attributes:
        html: the static face.

    Raises:
        ValueError: shapes other than these, more words than colors, or a coordinate outside −3 … 3 or not finite.
    """

    def __init__(self, tokens: Sequence[str], x, w_q, w_k, w_v, *, title: str):
        self._tokens, self._title = list(tokens), title
        self._maps = [np.array(matrix, dtype=float) for matrix in (w_q, w_k, w_v)]
        start = np.array(x, dtype=float)
        _check(self._tokens, start, self._maps)
        steps = attention_steps(start, *self._maps)
        self.html = page(title, self._tokens, start, self._maps, steps, describe(self._tokens, steps, 0))
        self._fields = [_field(token, axis, start[i, j]) for i, token in enumerate(tokens) for j, axis in enumerate("₁₂")]
        self._picture, self._tables, self._text = widgets.HTML(), widgets.HTML(), widgets.HTML()
        grid = widgets.GridBox(self._fields, layout=widgets.Layout(grid_template_columns="repeat(2, max-content)"))
        heading = widgets.HTML(f"<strong>{html.escape(title)}</strong>")
        super().__init__([heading, grid, self._picture, self._text, self._tables])
        for n, field in enumerate(self._fields):
            field.observe(lambda _, token=n // 2: self._redraw(token), names="value")
        self._redraw(0)

    @property
    def x(self) -> np.ndarray:
        """(n, 2) array: what the fields of the live face say now."""
        return np.array([field.value for field in self._fields]).reshape(-1, 2)

    def draw(self, x) -> Figure:
        """The word vectors at the left, their values and outputs at the right."""
        x = np.asarray(x, dtype=float)
        steps = attention_steps(x, *self._maps)
        unit = unit_of(steps["value"])
        value, output = steps["value"] / unit, steps["output"] / unit
        figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3.5))
        for i, (vector, color) in enumerate(zip(x, COLORS, strict=False)):
            left.plot([0, vector[0]], [0, vector[1]], color=color, linestyle="-")
            for other in value[:i]:
                right.plot(*zip(value[i], other, strict=True), color=GRAY, linestyle=":", linewidth=1)
        _mark(left, x, "o")
        _mark(right, value, "o", fill=False)
        _mark(right, output, "D")
        _name(left, self._tokens, vector_marks(x))
        _name(right, self._tokens, np.concatenate([output, value]))
        _frame(left, 1.0, TEXTS["plane"], "x")
        _frame(right, unit, TEXTS["values plane"], "v")
        return figure

    def __repr__(self) -> str:
        return f"AttentionPlayground({self._title!r}, {len(self._tokens)} words)"

    def _repr_mimebundle_(self, **kwargs) -> dict[str, Any]:
        return {**super()._repr_mimebundle_(**kwargs), "text/plain": repr(self), "text/html": self.html}

    def _redraw(self, moved: int) -> None:
        """Live: everything that follows from the fields as they are now."""
        steps = attention_steps(self.x, *self._maps)
        text = describe(self._tokens, steps, moved)
        self._picture.value = img(picture(self.draw, {"x": self.x}), text)
        self._text.value = f'<p role="status" style="margin:0">{html.escape(text)}</p>'
        self._tables.value = styled(step_tables(self._tokens, self._maps, steps))


def describe(tokens: Sequence[str], steps: dict[str, np.ndarray], token: int) -> str:
    """One sentence on one word: where it looks and what it takes from there."""
    weights, (first, second) = steps["weights"][token], steps["output"][token]
    most = int(weights.argmax())
    return TEXTS["says"].format(
        token=tokens[token],
        key=tokens[most],
        weight=written(weights[most]),
        first=written(first),
        second=written(second),
    )


def _check(tokens: list[str], x: np.ndarray, maps: list[np.ndarray]) -> None:
    n = len(tokens)
    if not 1 <= n <= len(COLORS):
        raise ValueError(f"the playground has room for 1 … {len(COLORS)} words, got {n}.")
    if x.shape != (n, 2):
        raise ValueError(f"x must be (n, 2) = ({n}, 2), one point of the plane for each word, got {x.shape}.")
    for name, matrix in zip(("w_q", "w_k", "w_v"), maps, strict=True):
        if matrix.shape != (2, 2) or not np.isfinite(matrix).all():
            raise ValueError(f"{name} must be a finite (2, 2) map of the plane, got shape {matrix.shape}: {matrix.tolist()}.")
    outside = x[~(np.abs(x) <= LIMIT)]  # so written, a NaN is outside too
    if outside.size:
        raise ValueError(f"coordinates lie within −{LIMIT:g} … {LIMIT:g}, got {outside.tolist()}.")


def _field(token: str, axis: str, value: float) -> widgets.BoundedFloatText:
    return widgets.BoundedFloatText(
        value=value,
        min=-LIMIT,
        max=LIMIT,
        step=0.1,
        description=TEXTS["field"].format(token=token, axis=axis),
        style={"description_width": "5.5rem"},
        layout=widgets.Layout(width="11rem"),
    )


def _frame(ax, unit: float, title: str, axis: str) -> None:
    ax.set(xlim=(-EDGE, EDGE), ylim=(-EDGE, EDGE), xlabel=f"{axis}₁", ylabel=f"{axis}₂", aspect="equal")
    for ticks in (ax.set_xticks, ax.set_yticks):
        ticks(TICKS, [written(at * unit, 0) for at in TICKS])
    ax.set_title(title, fontsize=12)
    ax.axhline(0, color=PALE, linestyle="-", zorder=0)
    ax.axvline(0, color=PALE, linestyle="-", zorder=0)


def _mark(ax, at: np.ndarray, marker: str, fill: bool = True) -> None:
    for point, color in zip(at, COLORS, strict=False):
        ax.plot(*point, marker=marker, color=color, fillstyle="full" if fill else "none", markersize=8, linestyle="none")


def _name(ax, names: Sequence[str], marks: np.ndarray) -> None:
    for name, mark, place in zip(names, marks, name_places(names, marks), strict=False):
        ax.text(*(mark + place), name, fontsize=11)
