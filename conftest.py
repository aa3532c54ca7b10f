"""Settings that every test run needs, the chapters' (`pytest --nbval`) included."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "tools"))  # the tools are scripts; tests import them by name

from notebooks import kernel_environment


def pytest_configure(config: pytest.Config) -> None:
    """Give nbval's kernels, which inherit this process's environment, the one that `tools/notebooks.py` gives its own."""
    if config.option.nbval or config.option.nbval_lax:
        wanted = kernel_environment(dict(os.environ))
        os.environ.pop("MPLBACKEND", None)
        os.environ.update(wanted)
    if "PYTEST_XDIST_WORKER" in os.environ:  # several workers share the cores
        os.environ.setdefault("OMP_NUM_THREADS", "1")
