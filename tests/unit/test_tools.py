"""The shell scripts, with stand-ins for what they call."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
ECHO = '#!/bin/sh\necho "$(basename "$0") $* [${CUDA_VISIBLE_DEVICES-unset}]" >> "$CALLS"\n'


@pytest.fixture
def run(tmp_path):
    """Runs a copy of a script in a folder of its own; returns the commands it gave, with the GPUs they would see."""
    tools, bin_folder = tmp_path / "tools", tmp_path / "venv" / "bin"
    tools.mkdir()
    bin_folder.mkdir(parents=True)
    for name in ("setup.cfg", "pyproject.toml"):
        (tmp_path / name).touch()
    for name in ("pip", "python", "tba-hpc", "ruff", "mypy", "lint-imports"):
        (bin_folder / name).write_text(ECHO)
        (bin_folder / name).chmod(0o755)

    def run_script(name, *words, **variables):
        shutil.copy(TOOLS / name, tools)
        if name != "setup.sh":
            (tools / "setup.sh").touch()
        calls = tmp_path / "calls"
        environment = os.environ | {
            "CALLS": str(calls),
            "CUDA_VISIBLE_DEVICES": "0,1",
            "PYTHON": sys.executable,
            "VENV": str(tmp_path / "venv"),
        }
        subprocess.run(["bash", tools / name, *words], env=environment | variables, check=True, timeout=60)
        return calls.read_text().splitlines()

    return run_script


def test_the_quickstart_sees_no_gpu(run):
    expected = "tba-hpc train configs/quickstart.yaml --ranks 4 --overwrite seed=1 []"
    assert run("quickstart.sh", "seed=1") == [expected]


def test_the_tests_see_no_gpu(run):
    assert run("test.sh", "-k", "this")[-1] == "python -m pytest -k this []"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("pins", ["numpy==2\n", "numpy==2\ntorch==2.13.0\n", "torch @ https://example.org/torch.whl\n"])
def test_any_constraints_will_do_for_the_installation(run, tmp_path, pins):
    (tmp_path / "pins.txt").write_text(pins)
    first, second = run("setup.sh", "mpich", CONSTRAINTS="pins.txt")
    assert first == "pip install --quiet --constraint pins.txt torch [0,1]"
    assert second == "pip install --quiet --constraint pins.txt --editable .[mpich] [0,1]"
