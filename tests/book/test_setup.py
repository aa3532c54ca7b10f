"""What `make` says on a machine where something is missing: one line with the remedy, never pip's own pages of it.

The machines are made of small scripts in the place of python3 and pip; nothing is installed.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("requirements.txt", "requirements-dev.txt", "constraints.txt", "pyproject.toml", "Makefile", "tools/setup.sh")
TOOLS = ("bash", "sh", "env", "make", "grep", "tail", "touch", "rm", "mkdir", "cp", "chmod", "cat", "awk")

# A Python as tools/setup.sh knows it: it says its version, has venv or not, makes an environment with a pip that does as told.
PYTHON = """#!/bin/sh
echo "$0 $*" >> "{calls}"
case "$*" in
  *"sys.exit(sys.version_info < (3, 11))"*) exit {too_old} ;;
  *"print("*) echo {version} ;;
  *"import venv, ensurepip"*) exit {no_venv} ;;
  *"-m venv"*) mkdir -p .venv/bin && cp "{pip_python}" .venv/bin/python && chmod +x .venv/bin/python ;;
esac
"""
PIP = """#!/bin/sh
echo "$0 $*" >> "{calls}"
case "$*" in
  *"-m pip install"*) {does} ;;
esac
"""

NO_NETWORK = """echo "WARNING: Retrying (Retry(total=4)) after 'NewConnectionError(Failed to resolve)': /x/"
echo "ERROR: Could not find a version that satisfies the requirement jupyter-book==1.0.4.post1"
echo "ERROR: No matching distribution found for jupyter-book==1.0.4.post1"; exit 1"""
NO_WHEEL = """echo "Collecting torch"; echo "ERROR: No matching distribution found for torch==2.13.0"; exit 1"""
NO_SPACE = """echo "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"; exit 1"""


class Machine:
    """A copy of the set-up files beside a PATH that holds nothing but what a test puts there."""

    def __init__(self, folder: Path):
        self.home, self.bin, self.calls = folder / "book", folder / "bin", folder / "calls"
        self.bin.mkdir()
        for name in NEEDED:
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.home / name)
        for name in TOOLS:
            (self.bin / name).symlink_to(shutil.which(name))

    def add_python(self, name="python3", *, version="3.12", too_old=False, no_venv=False, pip="exit 0") -> None:
        """Put a Python on the PATH; `pip` is what its environment's pip does, in shell."""
        pip_python = self.bin.parent / "venv-python"
        pip_python.write_text(PIP.format(calls=self.calls, does=pip))
        text = PYTHON.format(
            calls=self.calls, too_old=int(too_old), version=version, no_venv=int(no_venv), pip_python=pip_python
        )
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def make(self, *arguments: str) -> subprocess.CompletedProcess:
        environment = {"PATH": str(self.bin), "HOME": str(self.home), "LC_ALL": "C"}
        return subprocess.run(["make", *arguments], cwd=self.home, env=environment, capture_output=True, text=True, timeout=60)

    def change(self, name: str) -> None:
        """As if that file had been edited after the last install, and no other."""
        for number, path in enumerate([*NEEDED, ".venv/.ready", name], start=1):
            os.utime(self.home / path, (number, number))

    def installs(self) -> int:
        calls = self.calls.read_text() if self.calls.exists() else ""
        return calls.count("-m pip install")


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def refusal(machine: Machine, *arguments: str) -> str:
    """What the failing set-up says: one line, beside make's own about the rule that failed."""
    done = machine.make(*(arguments or (".venv/.ready",)))
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]
    assert len(said) == 1, done.stderr
    assert not (machine.home / ".venv/.ready").exists()
    return said[0]


def test_without_any_python_it_says_which_to_install(machine):
    said = refusal(machine)
    assert "Python 3.11 or newer is needed" in said
    assert "python3 is missing" in said
    assert "PYTHON=" in said


def test_an_old_python_is_named_with_its_version(machine):
    machine.add_python(version="3.9", too_old=True)
    said = refusal(machine)
    assert "python3 is 3.9" in said
    assert "PYTHON=" in said
    assert machine.installs() == 0


def test_a_newer_python_beside_an_old_python3_is_taken(machine):
    machine.add_python(version="3.9", too_old=True)
    machine.add_python("python3.12")
    assert machine.make(".venv/.ready").returncode == 0
    assert machine.installs() == 1


def test_the_python_that_the_reader_names_is_taken(machine):
    machine.add_python("python3", version="3.9", too_old=True)
    machine.add_python("mine", version="3.13")
    assert machine.make(".venv/.ready", "PYTHON=mine").returncode == 0
    assert "bin/mine -m venv" in machine.calls.read_text()


def test_a_missing_venv_names_the_package_to_install(machine):
    machine.add_python(no_venv=True, version="3.11")
    assert "sudo apt install python3.11-venv" in refusal(machine)


@pytest.mark.parametrize(
    ("pip", "remedy"),
    [
        (NO_NETWORK, "Check the network"),
        (NO_SPACE, "the disk is full"),
        (NO_WHEEL, "No matching distribution found for torch==2.13.0"),
    ],
    ids=["no network", "no space", "no fitting release"],
)
def test_a_failing_pip_is_told_in_one_line_that_names_its_log(machine, pip, remedy):
    machine.add_python(pip=pip)
    said = refusal(machine)
    assert remedy in said
    assert ".venv/install.log" in said
    assert "ERROR" in (machine.home / ".venv/install.log").read_text()


def test_packages_are_installed_once_and_again_when_a_pin_changes(machine):
    machine.add_python()
    assert machine.make(".venv/.ready").returncode == 0
    assert machine.make(".venv/.ready").returncode == 0
    assert machine.installs() == 1
    for count, name in enumerate(("requirements.txt", "constraints.txt", "pyproject.toml"), start=2):
        machine.change(name)
        assert machine.make(".venv/.ready").returncode == 0
        assert machine.installs() == count, name


def test_an_install_that_was_cut_short_is_not_taken_as_done(machine):
    machine.add_python(pip="if [ -e interrupted ]; then exit 130; fi")
    assert machine.make(".venv/.ready").returncode == 0
    (machine.home / "interrupted").touch()
    machine.change("constraints.txt")
    assert "cut short" in refusal(machine)
    (machine.home / "interrupted").unlink()
    assert machine.make(".venv/.ready").returncode == 0
    assert machine.installs() == 3


def test_an_environment_without_pip_is_made_anew(machine):
    machine.add_python()
    broken = machine.home / ".venv/bin/python"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert machine.make(".venv/.ready").returncode == 0
    assert machine.installs() == 1


def test_the_readers_tools_come_without_the_developers(machine):
    machine.add_python()
    machine.make(".venv/.ready")
    assert "requirements-dev.txt" not in machine.calls.read_text()
    machine.make(".venv/.ready-dev")
    assert "-r requirements-dev.txt" in machine.calls.read_text()


def test_help_lists_every_command(machine):
    said = machine.make("help").stdout
    for command in ("book", "test", "lab", "notebooks", "lint", "bench", "experiments", "clean"):
        assert f"make {command} " in said
