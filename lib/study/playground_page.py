"""The static face of the attention playground: planes that move with `playground.js`, and all numbers as tables."""

import html
from collections.abc import Sequence

import numpy as np

from lib.study.faces import asset, static_form
from lib.study.playground_planes import EDGE, LETTER, LIMIT, LINE, MARK, values_plane, vectors_plane, written
from lib.study.playground_planes import TEXTS as PLANE_TEXTS

# Every text of both faces that no parameter gives.
TEXTS = PLANE_TEXTS | {
    "hint": "Drag a point, focus it and press the arrow keys, or type a number between −3 and 3.",
    "inputs": "X in numbers",
    "reset": "Reset",
    "field": "{token}, x{axis}",
    "says": "“{token}” attends most to “{key}”, with weight {weight}; its output is ({first}, {second}).",
    "maps": "1. Three maps of every word",
    "scores": "2. Scores: every query with every key, divided by √d<sub>k</sub>",
    "softmax": "3. Softmax of each row",
    "blend": "4. Blend the values",
    "no script": "Moving the words needs JavaScript; without it the first numbers stay.",
}


def page(title: str, tokens: Sequence[str], x: np.ndarray, maps: Sequence[np.ndarray], steps: dict, text: str) -> str:
    """The whole static face.

    Args:
        tokens: n names; x: (n, 2); maps: W_q, W_k, W_v, each (2, 2); steps: what `attention_steps` gave for them.
        text: the sentence at the start.
    """
    stage = (
        f"{vectors_plane(tokens, x)}\n"
        f'<p class="says" aria-live="polite">{html.escape(text)}</p>\n'
        f"{values_plane(tokens, steps['value'], steps['output'])}\n{_inputs(tokens, x)}"
    )
    body = (
        f"<p>{TEXTS['hint']}</p>\n<noscript><p>{TEXTS['no script']}</p></noscript>\n"
        f'<div class="playground stage">{stage}</div>\n{step_tables(tokens, maps, steps)}'
    )
    data = {
        "tokens": list(tokens),
        "x": x.tolist(),
        "maps": [matrix.tolist() for matrix in maps],
        "limit": LIMIT,
        "plane": {"edge": EDGE, "letter": LETTER, "line": LINE, "mark": MARK},
        "says": TEXTS["says"],
        "position": TEXTS["position"],
    }
    return static_form(title, body, data, script=asset("playground.js"), style=asset("playground.css"))


def styled(body: str) -> str:
    """A piece of the page with its looks, for the live face."""
    return f'<div class="explorer"><style>\n{asset("explorer.css")}{asset("playground.css")}</style>{body}</div>'


def step_tables(tokens: Sequence[str], maps: Sequence[np.ndarray], steps: dict[str, np.ndarray]) -> str:
    """All numbers from the maps to the outputs, in four steps; the script finds its tables by `data-matrix`."""
    projections = "".join(
        f"<div>{_table(f'W<sub>{letter}</sub>', matrix)}"
        + _table(f"{name[0].upper()} = X·W<sub>{letter}</sub>", steps[name], tokens, [f"{letter}{axis}" for axis in "₁₂"], name)
        + "</div>"
        for letter, name, matrix in zip("qkv", ("query", "key", "value"), maps, strict=True)
    )
    scores = _table("Q·Kᵀ", steps["scores"], tokens, tokens, "scores")
    scaled = _table(f"Q·Kᵀ / √{maps[1].shape[1]}", steps["scaled"], tokens, tokens, "scaled")
    weights = _table("weights: each row adds up to 1", steps["weights"], tokens, tokens, "weights")
    output = _table("output = weights·V", steps["output"], tokens, ["o₁", "o₂"], "output")
    return (
        f'<div class="playground">{_step("maps", projections, folds=True)}{_step("scores", scores + scaled, folds=True)}'
        f"{_step('softmax', weights)}{_step('blend', output)}</div>"
    )


def _step(name: str, tables: str, folds: bool = False) -> str:
    """One step under its heading. On a phone the script folds up what would stand between the planes and the weights."""
    if folds:
        return f'<details class="step" open><summary>{TEXTS[name]}</summary><div class="playground">{tables}</div></details>\n'
    return f'<div class="step"><p>{TEXTS[name]}</p><div class="playground">{tables}</div></div>\n'


def _table(caption: str, matrix: np.ndarray, rows=None, columns=None, name: str = "") -> str:
    """One matrix. Rows and columns carry the words or axes that they stand for, where there are any."""
    head = ""
    if columns is not None:
        names = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in columns)
        head = f"<thead><tr><td></td>{names}</tr></thead>"
    digits = 0 if not name and np.all(matrix == np.round(matrix)) else 2  # a given map of whole numbers is written as given
    body = ""
    for i, row in enumerate(matrix):
        label = "" if rows is None else f'<th scope="row">{html.escape(rows[i])}</th>'
        shade = [f' style="--weight:{value:.3f}"' if name == "weights" else "" for value in row]
        body += f"<tr>{label}{''.join(f'<td{s}>{written(v, digits)}</td>' for s, v in zip(shade, row, strict=True))}</tr>"
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
    table = f'<table aria-label="{TEXTS["inputs"]}">{head}<tbody>{rows}</tbody></table>'
    fold = f"<details open><summary>{TEXTS['inputs']}</summary>{table}</details>"
    return f'<div class="inputs">{fold}<button type="reset">{TEXTS["reset"]}</button></div>'
