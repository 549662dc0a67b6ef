"""Processes under a hard time limit, and a model small enough to train within a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import save_tiny_model, tiny_settings

from tba_hpc.launch.local import mpiexec_words

PROGRAMS = Path(__file__).parent / "mpi" / "programs"
QUIET = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def pytest_configure() -> None:
    """Tests run on the CPU also where there are GPUs: several ranks could not share one."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real data in files of JSON lines, as their authors publish them: gsm8k_train.jsonl, math500_test.jsonl, …"""
    if "TBA_DATA_DIR" not in os.environ:
        pytest.skip("TBA_DATA_DIR does not name a folder with data")
    return Path(os.environ["TBA_DATA_DIR"])


@dataclass(frozen=True, slots=True)
class Finished:
    """What is left of a process."""

    code: int
    stdout: str
    stderr: str
    ended: float
    """Seconds since the epoch."""

    @property
    def output(self) -> str:
        return self.stdout + self.stderr

    @property
    def values(self) -> dict[str, Any]:
        """The JSON object that rank 0 of a program printed."""
        lines = [line for line in self.stdout.splitlines() if line.startswith("{")]
        assert len(lines) == 1, self.output
        values: dict[str, Any] = json.loads(lines[0])
        return values


class Job:
    """A process in a group of its own, with all that it starts."""

    def __init__(self, words: Sequence[str], cwd: Path | None = None) -> None:
        self._process = subprocess.Popen(
            words,
            cwd=cwd,
            env=os.environ | QUIET,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def result(self, seconds: float) -> Finished:
        """Waits for the end; past `seconds` kills the whole group and fails the test."""
        try:
            stdout, stderr = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            stdout, stderr = self._process.communicate()
            pytest.fail(f"still running after {seconds:.0f} s\n{stdout}\n{stderr}")
        return Finished(self._process.returncode, stdout, stderr, time.time())

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[..., Job]]:
    """Starts a process; whatever still runs at the end of the session is killed."""
    jobs: list[Job] = []

    def start_job(words: Sequence[str], cwd: Path | None = None) -> Job:
        jobs.append(Job(words, cwd))
        return jobs[-1]

    yield start_job
    for job in jobs:
        job.kill()


@pytest.fixture(scope="session")
def run_mpi(start: Callable[..., Job]) -> Callable[..., Finished]:
    """Runs `programs/NAME.py` with arguments on so many ranks and waits for its end."""

    def run(program: str, ranks: int, *arguments: object, seconds: float = 120) -> Finished:
        # -m mpi4py: a rank that fails ends all of them.
        python = [sys.executable, "-m", "mpi4py", str(PROGRAMS / f"{program}.py")]
        words = [*mpiexec_words(None), "-n", str(ranks), *python]
        return start([*words, *map(str, arguments)]).result(seconds)

    return run


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Llama of random weights over the arithmetic task's vocabulary."""
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model", seed=0)


@pytest.fixture(scope="session")
def tiny_reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one: a reference policy that the policy is not equal to has something to teach even without rewards."""
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "reference", seed=1)


@pytest.fixture(scope="session")
def tiny_run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration file of a run of seconds; its run_dir is to be overridden."""
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_settings(tiny_model, path.parent / "run")))
    return path
