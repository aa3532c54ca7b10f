"""Which way the arrows run: what each module may import, how long a file may grow, and that every public name is explained.

    masks, positional, cache ← tiled ← attention ← multihead, efficient ← layers ← stacks ← transformer ← generation
    diagnostics and interop may import all of these and are imported by none of them

All of these import torch, Python's own library and nothing else. `lib.study` may import them and the packages of the book;
only itself, chapters, tests, benchmarks, experiments and the scripts under checkpoints import it.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# From the ground up: a module imports from the rows above its own only. One that is not written yet may stand here.
RANKS = (
    {"masks", "positional", "cache", "inputs"},
    {"tiled"},
    {"attention"},
    {"multihead", "efficient"},
    {"layers"},
    {"stacks"},
    {"transformer"},
    {"generation"},
    {"diagnostics", "interop", "interop_transformers"},
)
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}
MAY_IMPORT_STUDY = ("lib/study/", "chapters/", "tests/", "benchmarks/", "experiments/", "checkpoints/")
LINES = 320
SMALL = ("lib", "tools", "benchmarks", "experiments", "checkpoints")
EXPLAINED = ("lib", "tools")


def sources(root: Path, *folders: str) -> dict[str, str]:
    """The Python files below some folders, or below all visible ones when none is named: path from the root → text."""
    tops = [root / folder for folder in folders] or [top for top in root.iterdir() if not top.name.startswith((".", "_"))]
    files = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*")) if path.suffix == ".py"]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in sorted(files)}


def imported(name: str, text: str) -> Iterator[str]:
    """The modules that a file imports anywhere in it, by their full names. `from lib import masks` counts as `lib.masks`."""
    package = Path(name).parent.parts
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            yield module
            if module == "lib":
                yield from (f"lib.{alias.name}" for alias in node.names)


def wrong_arrows(files: dict[str, str]) -> list[str]:
    """Every import that runs against the order, in words."""
    found = []
    for name, text in files.items():
        path = Path(name)
        in_core = path.parts[0] == "lib" and not name.startswith("lib/study/")
        module = path.parts[1].removesuffix(".py") if in_core else ""
        if in_core and module != "__init__" and module not in RANK:
            found.append(f"{name} has no place in the order; give it one in RANKS")
        for target in imported(name, text):
            top, _, rest = target.partition(".")
            part = rest.partition(".")[0]
            if part == "study" and top == "lib" and not name.startswith(MAY_IMPORT_STUDY):
                found.append(f"{name} imports {target}, which is for the book alone")
            elif in_core and top != "lib" and top != "torch" and top not in sys.stdlib_module_names:
                found.append(f"{name} imports {target}; the library needs torch alone")
            elif in_core and top == "lib" and part in RANK and part != module and RANK[part] >= RANK.get(module, -1):
                found.append(f"{name} imports {target}, which stands above or beside it")
    return found


def unexplained(name: str, text: str) -> list[str]:
    """The public names of a file that have no docstring, itself included. Names with an underscore in front are private."""
    tree = ast.parse(text)
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [] if ast.get_docstring(tree) else [name]
    public = [(node.name, node) for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]
    for title, node in public:
        if isinstance(node, ast.ClassDef):
            public += [
                (f"{title}.{part.name}", part)
                for part in node.body
                if isinstance(part, kinds) and not part.name.startswith("_") and not _is_overload(part)
            ]
        if not ast.get_docstring(node) and not _is_overload(node):
            found.append(f"{name}: {title}")
    return found


def _is_overload(node: ast.AST) -> bool:
    return any("overload" in ast.unparse(decorator) for decorator in getattr(node, "decorator_list", []))


def too_long(files: dict[str, str]) -> list[str]:
    return [name for name, text in files.items() if len(text.splitlines()) > LINES]


def test_the_arrows_run_one_way():
    files = sources(ROOT)
    assert {"lib/attention.py", "lib/masks.py"} <= files.keys()
    assert wrong_arrows(files) == []


def test_files_stay_small():
    assert too_long(sources(ROOT, *SMALL)) == []


def test_every_public_name_is_explained():
    files = sources(ROOT, *EXPLAINED)
    assert [problem for name, text in files.items() for problem in unexplained(name, text)] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lib/masks.py", "import math\nfrom __future__ import annotations\nimport torch.nn.functional as F"),
        ("lib/attention.py", "from lib import masks\nfrom lib.tiled import tiled_attention"),
        ("lib/generation.py", "from .cache import KVCache\nfrom . import transformer"),
        ("lib/efficient/linear.py", "from ..attention import SelfAttention\nfrom .windowed import window\nimport lib.masks"),
        ("lib/interop.py", "from lib.transformer import Transformer"),
        ("lib/study/plots.py", "import matplotlib\nfrom lib.study import faces\nfrom lib.diagnostics import doctor"),
        ("tests/lib/test_x.py", "import lib.study.data, numpy"),
        ("benchmarks/speed.py", "from lib.study.plots import use_style"),
    ],
)
def test_an_arrow_that_runs_the_right_way_is_let_through(name, text):
    assert wrong_arrows({name: text}) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("lib/masks.py", "import numpy as np", "lib/masks.py imports numpy; the library needs torch alone"),
        ("lib/masks.py", "def f():\n    from torchvision.ops import nms", "lib/masks.py imports torchvision.ops; the library"),
        ("lib/masks.py", "from lib.attention import SelfAttention", "lib/masks.py imports lib.attention, which stands above"),
        ("lib/masks.py", "from lib import generation", "lib/masks.py imports lib.generation, which stands above"),
        (
            "lib/masks.py",
            "from .positional import Sinusoidal",
            "lib/masks.py imports lib.positional, which stands above or beside",
        ),
        ("lib/efficient/linear.py", "from .. import layers", "lib/efficient/linear.py imports lib.layers, which stands above"),
        ("lib/transformer.py", "import lib.interop", "lib/transformer.py imports lib.interop, which stands above"),
        ("lib/interop.py", "import lib.diagnostics", "lib/interop.py imports lib.diagnostics, which stands above or beside"),
        (
            "lib/__init__.py",
            "from lib.attention import SelfAttention",
            "lib/__init__.py imports lib.attention, which stands above",
        ),
        ("lib/attention.py", "from lib import study", "lib/attention.py imports lib.study, which is for the book alone"),
        (
            "tools/notebooks.py",
            "from lib.study.verdicts import verdict",
            "tools/notebooks.py imports lib.study.verdicts, which is",
        ),
        ("lib/oddments.py", "", "lib/oddments.py has no place in the order; give it one in RANKS"),
    ],
)
def test_an_arrow_that_runs_the_wrong_way_is_found(name, text, expected):
    found = wrong_arrows({name: text})
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_a_long_file_is_found():
    assert too_long({"a.py": "x\n" * LINES, "b.py": "x\n" * (LINES + 1)}) == ["b.py"]


def test_a_public_name_without_a_docstring_is_found():
    text = '''
class Known:
    """A class."""
    def forward(self): ...
    def _hidden(self): ...
    @property
    def width(self):
        """A width."""
async def call(): ...
def _private(): ...
'''
    assert unexplained("x.py", text) == ["x.py", "x.py: call", "x.py: Known.forward"]
