"""What every test shares: the device, the backend, the gradient mode, one thread and one seed."""

import pytest
import torch
from hypothesis import settings

from lib.attention import BACKENDS

# One thread: sums come in the same order on every run, and tests that run side by side do not fight for the cores.
torch.set_num_threads(1)

# The same examples on every run: a course must not fail today for what it passed yesterday.
settings.register_profile("steady", deadline=None, derandomize=True, database=None, max_examples=40)
settings.load_profile("steady")

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
GRADIENT_MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=DEVICES, scope="session")
def device(request) -> str:
    """Every test that takes it runs on the CPU, and once more on the GPU where there is one."""
    return request.param


@pytest.fixture(params=[name for name in BACKENDS if name != "auto"], scope="session")
def backend(request) -> str:
    """Each backend of the attention function by itself. A new one is tested as soon as the library names it."""
    return request.param


@pytest.fixture(params=GRADIENT_MODES.values(), ids=GRADIENT_MODES, scope="session")
def gradient_mode(request) -> type:
    """A context manager: `enable_grad`, `no_grad` or `inference_mode`. None of them may change a number."""
    return request.param
