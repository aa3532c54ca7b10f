"""The attention playground: Python's steps against the library's attention, and its two faces."""

import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib.attention import SelfAttention
from lib.study.playground import AttentionPlayground, attention_steps
from lib.study.playground_page import values_reach, written

TOKENS = ["the", "cat", "sat", "down"]
X = [[1.0, 0.5], [-1.0, 2.0], [0.5, -1.5], [-2.0, -0.5]]
MAPS = ([[1.0, 0.5], [0.0, 1.0]], [[1.0, 0.0], [1.0, -0.5]], [[0.5, 1.0], [-1.0, 0.5]])

numbers = st.floats(-3, 3, width=32)


def make(**changes) -> AttentionPlayground:
    given = {"tokens": TOKENS, "x": X, "w_q": MAPS[0], "w_k": MAPS[1], "w_v": MAPS[2], "title": "By hand"}
    return AttentionPlayground(**(given | changes))


def cells(html: str, name: str) -> list[float]:
    body = re.search(rf'<tbody data-matrix="{name}">(.*?)</tbody>', html)[1]
    return [float(cell.replace("−", "-")) for cell in re.findall(r"<td[^>]*>([^<]*)</td>", body)]


@given(arrays(float, (5, 3), elements=numbers), *(arrays(float, shape, elements=numbers) for shape in ((3, 4), (3, 4), (3, 2))))
def test_the_steps_are_those_of_self_attention(x, w_q, w_k, w_v):
    steps = attention_steps(x, w_q, w_k, w_v)
    attention = SelfAttention(3, 4, 2).double()
    with torch.no_grad():
        for layer, matrix in zip((attention.q_proj, attention.k_proj, attention.v_proj), (w_q, w_k, w_v), strict=True):
            layer.weight.copy_(torch.from_numpy(matrix.T))
        output, weights = attention(torch.from_numpy(x)[None])
    np.testing.assert_allclose(steps["output"], output[0], atol=1e-12)
    np.testing.assert_allclose(steps["weights"], weights[0], atol=1e-12)
    np.testing.assert_allclose(steps["scaled"], steps["scores"] / 2, atol=1e-12)  # d_k = 4
    np.testing.assert_allclose(steps["scores"], x @ w_q @ w_k.T @ x.T, atol=1e-9)


@given(arrays(float, (4, 2), elements=numbers), arrays(float, (2, 2), elements=numbers))
def test_no_value_and_no_output_leaves_the_plane_that_is_drawn(x, w_v):
    steps = attention_steps(x, *MAPS[:2], w_v)
    reach = values_reach(w_v) + 1e-9
    assert np.abs(steps["value"]).max() <= reach
    assert np.abs(steps["output"]).max() <= reach


def test_it_has_two_faces_and_a_short_text():
    playground = make()
    bundle = playground._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    assert bundle["text/plain"] == repr(playground) == "AttentionPlayground('By hand', 4 tokens)"
    assert bundle["text/html"] == playground.html == make().html


def test_both_faces_start_with_the_numbers_of_the_formula():
    playground = make()
    steps = attention_steps(X, *MAPS)
    for html in (playground.html, playground._tables.value):
        for name, expected in steps.items():
            np.testing.assert_allclose(cells(html, name), expected.ravel(), atol=0.00051, err_msg=name)
    assert "“the” attends most to “the”, with weight 0.54; its output is (−0.25, 0.53)." in playground.html


def test_typing_in_the_live_face_recomputes_everything():
    playground = make()
    picture, x = playground._picture.value, np.array(X)
    x[1, 1] = -2.5
    playground._fields[3].value = -2.5
    np.testing.assert_allclose(playground.x, x)
    for name, expected in attention_steps(x, *MAPS).items():
        np.testing.assert_allclose(cells(playground._tables.value, name), expected.ravel(), atol=0.00051, err_msg=name)
    assert playground._picture.value != picture
    assert playground._text.value.startswith('<p role="status" style="margin:0">“cat” attends most to')
    assert playground._fields[3].description == "cat, x₂"


def test_live_fields_clamp_to_the_plane():
    playground = make()
    playground._fields[0].value = 17
    assert playground.x[0].tolist() == [3, 0.5]


def test_the_static_face_is_self_contained_and_labeled():
    html = make().html
    assert re.findall(r"https?:|@import|url\(| id=", html) == []
    assert re.findall(r'aria-label="(\w+, x[₁₂])"', html) == [f"{token}, x{axis}" for token in TOKENS for axis in "₁₂"]
    assert len(re.findall(r'<g class="point" tabindex="0" role="slider" aria-label', html)) == 4
    assert '<button type="reset">Reset</button>' in html
    assert html.count("<caption>") == html.count("<table>") == 11
    assert len(html.encode()) < 40_000


def test_tokens_cannot_break_out_of_the_page():
    html = make(tokens=["</script><b>", '"&', "sat", "down"], title="<i>").html
    assert "<b>" not in html
    assert "<i>" not in html
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)[1])
    assert data["tokens"][:2] == ["</script><b>", '"&']


def test_inputs_are_left_alone_and_no_figure_stays_open():
    plt.close("all")
    x, maps = np.array(X), [np.array(matrix) for matrix in MAPS]
    playground = make(x=x, w_q=maps[0], w_k=maps[1], w_v=maps[2])
    playground._fields[0].value = 2.0
    np.testing.assert_array_equal(x, X)
    for matrix, before in zip(maps, MAPS, strict=True):
        np.testing.assert_array_equal(matrix, before)
    assert plt.get_fignums() == []


def test_the_live_picture_shows_tokens_values_and_outputs():
    figure = make().draw(X)
    left, right = figure.axes
    steps = attention_steps(X, *MAPS)
    marks = {tuple(np.ravel(line.get_xydata())) for ax in (left, right) for line in ax.lines if line.get_linestyle() == "None"}
    for vectors in (np.array(X), steps["value"], steps["output"]):
        assert {tuple(vector) for vector in vectors} <= marks
    plt.close(figure)


@pytest.mark.parametrize(
    ("number", "digits", "expected"),
    [(-0.0004, 3, "0.000"), (-0.0, 2, "0.00"), (-1.25, 3, "−1.250"), (12, 2, "12.00"), (0.9996, 3, "1.000")],
)
def test_numbers_have_fixed_digits_a_true_minus_and_no_negative_zero(number, digits, expected):
    assert written(number, digits) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": TOKENS[:3]}, r"x must be \(n, 2\) = \(3, 2\).*got \(4, 2\)"),
        ({"tokens": list("abcdefg"), "x": np.zeros((7, 2))}, r"room for 1 … 6 tokens, got 7"),
        ({"tokens": [], "x": np.zeros((0, 2))}, r"room for 1 … 6 tokens, got 0"),
        ({"x": [[4.0, 0], [0, 0], [0, -5], [0, 0]]}, r"coordinates lie within −3 … 3, got \[4.0, -5.0\]"),
        ({"x": [[np.nan, 0], [0, 0], [0, 0], [0, 0]]}, r"got \[nan\]"),
        ({"w_k": np.eye(3)}, r"w_k must be a finite \(2, 2\) map of the plane, got shape \(3, 3\)"),
        ({"w_v": [[np.inf, 0], [0, 1]]}, r"w_v must be a finite \(2, 2\).*inf"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)
