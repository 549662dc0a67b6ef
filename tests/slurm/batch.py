"""Batch jobs as a user has them: submitted, signalled, watched."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from written import steps_of

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Batch:
    """Commands of a Slurm."""

    environment: dict[str, str]

    def call(self, *words: object) -> str:
        done = subprocess.run(
            list(map(str, words)), env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def sbatch(self, *words: object) -> str:
        """Submits from the root of the repository; the id of the job."""
        return self.call("sbatch", "--parsable", *words).strip()

    def fail(self, node: str, job: str, log: Path) -> None:
        """Takes a node away from a job, and gives it back once the job has lost it."""
        self.call("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        wait_until(lambda: self.state(job) != "RUNNING", 60, lambda: read(log))
        words = ["scontrol", "update", f"nodename={node}", "state=resume"]
        subprocess.run(words, env=self.environment, check=False, timeout=60)  # refused if it came back by itself

    def state(self, job: str) -> str:
        """That of all its components, if it has one."""
        states = self.call("squeue", "--noheader", "--states=all", "--format=%T", "--jobs", job).split()
        return "/".join(sorted(set(states)))

    def wait(self, job: str, log: Path, seconds: float = 180) -> str:
        """The state in which the job ends, at which it is not to be requeued any more."""
        final = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        wait_until(lambda: self.state(job) in final, seconds, lambda: f"{self.state(job)}\n{read(log)}")
        return self.state(job)

    def wait_for_steps(self, run_dir: Path, steps: int, log: Path, seconds: float = 150) -> None:
        wait_until(lambda: len(steps_of(run_dir)) >= steps, seconds, lambda: read(log))


def wait_until(done: Callable[[], bool], seconds: float, describe: Callable[[], str]) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds:.0f} s\n{describe()}")
        time.sleep(0.2)


def read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def attempts_in(log: Path) -> list[str]:
    """The line with which each attempt begins."""
    return [line for line in read(log).splitlines() if line.startswith("job ") and ", attempt " in line]
