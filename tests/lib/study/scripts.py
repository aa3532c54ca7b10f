"""A script of the project as a module, so that its functions can be tested without running it."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]


def load_script(name: str) -> ModuleType:
    """The script at `name` below the project's root, such as "experiments/scale.py"."""
    path = ROOT / name
    spec = spec_from_file_location(f"script_{path.stem}", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
