"""Small notebooks for the tests of the tools: a sound one with a cell of each kind, and one with all that tends to differ."""

from pathlib import Path

from nbformat import NotebookNode, v4
from notebooks import clean

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==\n"
ALT = {"mystnb": {"image": {"alt": "A line that rises from 1 to 3"}}}


def markdown(id: str, source: str) -> NotebookNode:
    return v4.new_markdown_cell(source, id=id)


def code(id: str, source: str, *outputs: NotebookNode, tags: tuple[str, ...] = (), **metadata) -> NotebookNode:
    metadata = metadata | ({"tags": list(tags)} if tags else {})
    return v4.new_code_cell(source, id=id, outputs=list(outputs), metadata=metadata, execution_count=1)


def stream(text: str, name: str = "stdout") -> NotebookNode:
    return v4.new_output("stream", name=name, text=text)


def shown(output_type: str = "display_data", **data: str) -> NotebookNode:
    """`text_plain="…"` stands for the kind text/plain."""
    return v4.new_output(output_type, data={kind.replace("_", "/", 1): text for kind, text in data.items()})


def sound() -> NotebookNode:
    """A clean notebook with one cell of each kind. The planted faults name its cells by their index."""
    cells = [
        markdown("title", "# Title\n\n![A drawn queue](queue.png)"),
        code("print", "print(1)\nprint(2)", stream("1\n2\n")),
        code(
            "plot", "plt.plot([1, 3])\nplt.show()", shown(image_png=PNG, text_plain="<Figure size 640x480 with 1 Axes>"), **ALT
        ),
        code("explorer", "explorer", shown("execute_result", text_html='<img alt="θ = 1">', text_plain="Explorer(θ=1)")),
        code("raises", "1 / 0", v4.new_output("error", ename="ZeroDivisionError", evalue="zero"), tags=("raises-exception",)),
        code("timed", "print(seconds)", stream("0.1\n"), tags=("nbval-ignore-output",)),
    ]
    return clean(v4.new_notebook(cells=cells))


def write(path: Path, notebook: NotebookNode) -> bytes:
    path.write_text(v4.writes(notebook) + "\n", encoding="utf-8")
    return path.read_bytes()


LIVELY = {
    "imports": "import sys\n\nimport ipywidgets\nimport matplotlib.pyplot as plt\nfrom tqdm import tqdm",
    "stream": "for i in tqdm(range(50)):\n    print(i, flush=True)",
    "plot": "plt.plot([1, 3, 2])\nplt.show()",
    "widget": (
        "class Explorer(ipywidgets.VBox):\n"
        "    def _repr_mimebundle_(self, **kwargs):\n"
        "        return super()._repr_mimebundle_(**kwargs) | {'text/html': '<p>θ</p>', 'text/plain': 'Explorer(θ)'}\n"
        "\n\n"
        "Explorer([ipywidgets.IntSlider()])"
    ),
}


def lively(**more: str) -> NotebookNode:
    """A notebook that never ran, with all that tends to differ between two runs."""
    cells = [v4.new_code_cell(source, id=id, metadata=ALT if id == "plot" else {}) for id, source in (LIVELY | more).items()]
    return v4.new_notebook(cells=cells)
