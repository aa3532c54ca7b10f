"""The static face of the attention playground: planes as inline SVG, numbers as tables, moved by `playground.js`."""

import html
from collections.abc import Sequence
from itertools import combinations, product

import numpy as np

from lib.study.faces import asset, static_form
from lib.study.plots import COLORS

LIMIT = 3.0  # coordinates of a token stay within −3 … 3

# Every text of both faces that no parameter gives.
TEXTS = {
    "hint": "Drag a point, focus it and press the arrow keys, or type a number between −3 and 3.",
    "plane": "Token vectors X",
    "values plane": "Values V (○), outputs (◆)",
    "inputs": "X, a row for each token",
    "reset": "Reset",
    "field": "{token}, x{axis}",
    "position": "x₁ {first}, x₂ {second}",
    "says": "“{token}” attends most to “{key}”, with weight {weight}; its output is ({first}, {second}).",
    "project": "1. Project every token three times, by three maps",
    "compare": "2. Compare every query with every key",
    "scale": "3. Divide by √d_k, here √2",
    "softmax": "4. Softmax: each row sums to 1",
    "blend": "5. Blend the values into outputs",
    "no script": "Moving the tokens needs JavaScript; without it the first numbers stay.",
}


def page(title: str, tokens: Sequence[str], x: np.ndarray, maps: Sequence[np.ndarray], steps: dict, text: str) -> str:
    """The whole static face.

    Args:
        tokens: n names; x: (n, 2); maps: W_Q, W_K, W_V, each (2, 2); steps: what `attention_steps` gave for them.
        text: the sentence at the start.
    """
    planes = _vectors_plane(tokens, x) + _values_plane(tokens, steps, values_reach(maps[2]))
    body = (
        f"<p>{TEXTS['hint']}</p>\n"
        f'<div class="playground">{planes}{_inputs(tokens, x)}</div>\n'
        f'<p class="says" aria-live="polite">{html.escape(text)}</p>\n<noscript><p>{TEXTS["no script"]}</p></noscript>\n'
        f"{step_tables(tokens, maps, steps)}"
    )
    data = {
        "tokens": list(tokens),
        "x": x.tolist(),
        "maps": [matrix.tolist() for matrix in maps],
        "limit": LIMIT,
        "says": TEXTS["says"],
        "position": TEXTS["position"],
    }
    return static_form(title, body, data, script=asset("playground.js"), style=asset("playground.css"))


def styled(body: str) -> str:
    """A piece of the page with its looks, for the live face."""
    return f'<div class="explorer"><style>\n{asset("explorer.css")}{asset("playground.css")}</style>{body}</div>'


def step_tables(tokens: Sequence[str], maps: Sequence[np.ndarray], steps: dict[str, np.ndarray]) -> str:
    """All numbers from the maps to the outputs, as tables; the script finds them by `data-matrix`."""
    projections = [
        _table(f"W<sub>{letter}</sub>", matrix)
        + _table(f"{letter} = X·W<sub>{letter}</sub>", steps[name], tokens, [f"{letter.lower()}{axis}" for axis in "₁₂"], name)
        for (letter, name), matrix in zip({"Q": "query", "K": "key", "V": "value"}.items(), maps, strict=True)
    ]
    pairs = [
        _step(step, _table(caption, steps[name], tokens, tokens, name))
        for step, caption, name in (
            ("compare", "QKᵀ", "scores"),
            ("scale", "QKᵀ / √2", "scaled"),
            ("softmax", "softmax(QKᵀ / √2)", "weights"),
        )
    ]
    output = _table("weights · V", steps["output"], tokens, ["o₁", "o₂"], "output")
    return f'<div class="playground">{_step("project", *projections)}{"".join(pairs)}{_step("blend", output)}</div>'


def values_reach(w_v: np.ndarray) -> float:
    """How far from 0 a value, and so an output, can come: the plane of the values stays as it is while the tokens move."""
    return max(1.0, LIMIT * float(np.abs(w_v).sum(axis=0).max()))


def written(number: float, digits: int = 3) -> str:
    """A number as the page writes it: fixed digits, a true minus sign, and no minus before a zero."""
    return f"{round(float(number), digits) + 0.0:.{digits}f}".replace("-", "−")


def _step(name: str, *columns: str) -> str:
    columns = "".join(f"<div>{tables}</div>" for tables in columns)
    return f'<div><p class="step">{TEXTS[name]}</p><div class="playground">{columns}</div></div>\n'


def _table(caption: str, matrix: np.ndarray, rows=None, columns=None, name: str = "") -> str:
    """One matrix. Rows and columns carry the tokens or axes that they stand for, where there are any."""
    head = ""
    if columns is not None:
        names = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in columns)
        head = f"<thead><tr><td></td>{names}</tr></thead>"
    body = ""
    for i, row in enumerate(matrix):
        label = "" if rows is None else f'<th scope="row">{html.escape(rows[i])}</th>'
        shade = [f' style="--weight:{value:.3f}"' if name == "weights" else "" for value in row]
        body += f"<tr>{label}{''.join(f'<td{s}>{written(v)}</td>' for s, v in zip(shade, row, strict=True))}</tr>"
    mark = f' data-matrix="{name}"' if name else ""
    return f"<table><caption>{caption}</caption>{head}<tbody{mark}>{body}</tbody></table>"


def _inputs(tokens: Sequence[str], x: np.ndarray) -> str:
    rows = ""
    for token, vector in zip(tokens, x, strict=True):
        rows += f'<tr><th scope="row">{html.escape(token)}</th>'
        for axis, value in zip("₁₂", vector, strict=True):
            label = html.escape(TEXTS["field"].format(token=token, axis=axis))
            span = f'min="{-LIMIT:g}" max="{LIMIT:g}" step="0.1"'
            rows += f'<td><input type="number" {span} value="{value:g}" aria-label="{label}"></td>'
        rows += "</tr>"
    head = '<thead><tr><td></td><th scope="col">x₁</th><th scope="col">x₂</th></tr></thead>'
    table = f"<table><caption>{TEXTS['inputs']}</caption>{head}<tbody>{rows}</tbody></table>"
    return f'<div>{table}<button type="reset">{TEXTS["reset"]}</button></div>'


def _vectors_plane(tokens: Sequence[str], x: np.ndarray) -> str:
    """The plane whose points move. A point is a slider to assistive technology: focusable, moved by arrows, with its value."""
    lines = "".join(
        f'<line class="vector" stroke="{color}" x1="0" y1="0" x2="{a:g}" y2="{-b:g}"/>'
        for (a, b), color in zip(x, COLORS, strict=False)
    )
    points = ""
    for token, (a, b), color in zip(tokens, x, COLORS, strict=False):
        position = TEXTS["position"].format(first=written(a, 2), second=written(b, 2))
        points += (
            f'<g class="point" tabindex="0" role="slider" aria-label="{html.escape(token)}" aria-valuemin="{-LIMIT:g}" '
            f'aria-valuemax="{LIMIT:g}" aria-valuenow="{a:g}" aria-valuetext="{position}" transform="translate({a:g} {-b:g})">'
            f'<circle class="reach" r="0.36"/><circle r="0.16" fill="{color}"/>'
            f'<text x="0.24" y="-0.2">{html.escape(token)}</text></g>'
        )
    return _plane(TEXTS["plane"], lines + points, LIMIT, 'role="group"')


def _values_plane(tokens: Sequence[str], steps: dict[str, np.ndarray], reach: float) -> str:
    """Values and outputs. The dotted lines between all values outline their hull, which no output can leave."""
    size = reach / LIMIT  # marks and letters keep their size on the page whatever the plane reaches
    value = steps["value"]
    marks = ""
    for i, j in combinations(range(len(tokens)), 2):
        ends = f'x1="{value[i][0]:.3f}" y1="{-value[i][1]:.3f}" x2="{value[j][0]:.3f}" y2="{-value[j][1]:.3f}"'
        marks += f'<line class="pair" vector-effect="non-scaling-stroke" data-from="{i}" data-to="{j}" {ends}/>'
    shapes = {
        "value": '<circle r="0.14" fill="none" stroke="{color}" stroke-width="0.06"/><text x="0.24" y="-0.2">{token}</text>',
        "output": '<path d="M0 -0.17 L0.17 0 L0 0.17 L-0.17 0 Z" fill="{color}"/>',
    }
    for (name, shape), (i, token) in product(shapes.items(), enumerate(tokens)):
        a, b = steps[name][i]
        drawn = shape.format(color=COLORS[i], token=html.escape(token))
        marks += f'<g class="{name}" transform="translate({a:.3f} {-b:.3f})"><g transform="scale({size:g})">{drawn}</g></g>'
    return _plane(TEXTS["values plane"], marks, reach, 'role="img"')


def _plane(caption: str, marks: str, reach: float, role: str) -> str:
    edge = 1.15 * reach
    lines = "".join(
        f'<path class="{"axis" if at == 0 else "grid"}" vector-effect="non-scaling-stroke" '
        f'd="M{at:g} {-edge:g} V{edge:g} M{-edge:g} {at:g} H{edge:g}"/>'
        for at in np.arange(-np.floor(edge), np.floor(edge) + 1)
    )
    box = f"{-edge:g} {-edge:g} {2 * edge:g} {2 * edge:g}"
    svg = f'<svg viewBox="{box}" {role} aria-label="{caption}">{lines}{marks}</svg>'
    return f"<figure><figcaption>{caption}</figcaption>{svg}</figure>"
