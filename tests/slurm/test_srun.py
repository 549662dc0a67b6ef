"""Ranks started by srun."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batch import Batch, attempts_in, read

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
TRAIN = [sys.executable, "-m", "tba_hpc", "train", "configs/quickstart.yaml"]


def srun(slurm: dict[str, str], words: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["srun", "-K1", *words], env=slurm, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def test_mpi_choice_that_does_not_fit_is_refused_by_name(slurm: dict[str, str], tmp_path: Path) -> None:
    result = srun(slurm, ["--mpi=none", "-n4", *TRAIN, f"run_dir={tmp_path / 'run'}"], timeout=120)
    assert result.returncode != 0
    assert "srun started 4 tasks but MPI sees a world of 1" in result.stderr
    assert "--mpi=pmi2" in result.stderr
    assert not (tmp_path / "run").exists()


def test_failing_rank_ends_the_job_with_its_traceback(slurm: dict[str, str]) -> None:
    started = time.monotonic()
    result = srun(slurm, ["--mpi=pmi2", "-n4", "-N2", sys.executable, str(PROGRAMS / "failing_rank.py")], timeout=50)
    assert result.returncode != 0
    assert "[searcher 1 (rank 2)] RuntimeError: the reward model is gone" in result.stderr
    assert time.monotonic() - started < 50


@pytest.mark.slow
def test_trains_over_two_nodes(slurm: dict[str, str], tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    overrides = [f"run_dir={run_dir}", "trainer.steps=4", "evaluation.problems=20"]
    result = srun(slurm, ["--mpi=pmi2", "-n4", "-N2", *TRAIN, *overrides], timeout=280)
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads((run_dir / "report.json").read_text())["searchers"] == 3
    assert len((run_dir / "metrics.jsonl").read_text().splitlines()) == 4


def test_what_killed_ranks_leave_behind_is_not_in_the_way_of_the_next_attempt(batch: Batch, tmp_path: Path) -> None:
    """MPICH's shared memory, which is named after job and step."""
    log = tmp_path / "log"
    program = PROGRAMS / "killed_once.py"
    (tmp_path / "script").write_text(f"#!/bin/sh\nexec {sys.executable} {program}\n")
    job = batch.sbatch("-N1", "-n3", "--requeue", "--open-mode=append", f"--output={log}", tmp_path / "script")
    assert batch.wait(job, log, seconds=60) == "COMPLETED", read(log)
    assert len(attempts_in(log)) == 2
