"""Runs as batch jobs: over nodes, interrupted in every way there is, and from a program. Few, as a start of four ranks
takes long on two cores."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from batch import ROOT, Batch, attempts_in, read, wait_until
from held import KEEP_ALL, check_nothing_lost_or_doubled
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import tiny_settings
from written import steps_of

from tba_hpc.checkpoint import newest_checkpoint
from tba_hpc.launch import submit_sweep

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

SCRIPT = "slurm/tba_quickstart.sbatch"
HETJOB = "slurm/tba_quickstart_hetjob.sbatch"


@dataclass(frozen=True)
class Job:
    """A batch job, its log and the folder of its run."""

    id: str
    log: Path
    run_dir: Path


@pytest.fixture(scope="module")
def words(tiny_model: Path) -> list[str]:
    """Overrides that make of the quickstart a run of seconds."""
    settings = tiny_settings(tiny_model, "unused")
    kept = ("model", "rollout", "buffer", "objective", "trainer", "distributed", "evaluation", "logging")
    inline = {name: yaml.safe_dump(settings[name], default_flow_style=True, width=10_000).strip() for name in kept}
    return [f"{name}={value}" for name, value in inline.items()]


@pytest.fixture(scope="module")
def limited(batch: Batch, words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job of three minutes whose run takes longer, submitted before the others and left alone on nodes of its own.
    Slurm's signal comes too late to be what it saves itself for."""
    folder = tmp_path_factory.mktemp("limited")
    own = [f"run_dir={folder / 'run'}", "trainer.steps=100000", "launch.save_before_end=100"]
    options = ["--time=3", "--ntasks-per-node=1", "--signal=B:USR1@1", "--nodelist=n[3-4]", f"--output={folder}/log"]
    return Job(batch.sbatch(*options, SCRIPT, *words, *own), folder / "log", folder / "run")


@pytest.fixture
def ended_with_success(batch: Batch):
    """Waits for a job, and says what it printed if it fails."""

    def wait(job: Job) -> None:
        assert batch.wait(job.id, job.log) == "COMPLETED", read(job.log)

    return wait


def test_a_heterogeneous_job_trains_where_its_first_component_is(batch, words, limited, tmp_path, ended_with_success):
    run_dir = tmp_path / "a run"
    options = [f"--output={tmp_path}/log"]
    job = Job(batch.sbatch(*options, HETJOB, *words, f"run_dir={run_dir}"), tmp_path / "log", run_dir)
    ended_with_success(job)
    report = json.loads((run_dir / "report.json").read_text())
    assert (report["trainers"], report["searchers"], report["steps"]) == (1, 3, 6)


def test_a_run_saves_itself_before_its_time_is_up(batch, limited):
    wait_until(lambda: len(attempts_in(limited.log)) >= 2, 100, lambda: read(limited.log))
    saved, *_ = re.findall(r"saved after step (\d+) \(the job is about to end\)", read(limited.log))
    assert "DUE TO TIME LIMIT" not in read(limited.log)
    batch.wait_for_steps(limited.run_dir, int(saved) + 3, limited.log)
    batch.call("scancel", limited.id)
    steps = steps_of(limited.run_dir)
    assert steps == list(range(1, len(steps) + 1))


def test_a_run_goes_on_after_a_signal_and_after_a_node_has_failed(batch, words, tmp_path, ended_with_success):
    run_dir, steps = tmp_path / "run", 120
    own = [f"run_dir={run_dir}", f"trainer.steps={steps}", "checkpoint.every_steps=5", "seed=0", *KEEP_ALL]
    options = ["--nodelist=n[1-2]", f"--output={tmp_path}/log"]
    job = Job(batch.sbatch(*options, SCRIPT, *words, *own), tmp_path / "log", run_dir)

    batch.wait_for_steps(run_dir, 7, job.log)
    batch.call("scancel", "--signal=USR1", job.id)
    wait_until(lambda: "is requeued to go on with it" in read(job.log), 60, lambda: read(job.log))
    saved = len(steps_of(run_dir))
    assert saved < steps

    batch.wait_for_steps(run_dir, saved + 10, job.log)
    batch.fail("n2", job.id, job.log)
    ended_with_success(job)

    assert [line.partition(":")[0] for line in attempts_in(job.log)] == [
        f"job {job.id}, attempt {attempt}, on n[1-2]" for attempt in (1, 2, 3)
    ]
    assert steps_of(run_dir) == list(range(1, steps + 1))
    assert json.loads((run_dir / "report.json").read_text())["steps"] == steps
    check_nothing_lost_or_doubled(newest_checkpoint(run_dir / "checkpoints"), tmp_path / "held", seed=0)
    board = EventAccumulator(str(run_dir / "tensorboard"), size_guidance={"scalars": 0})
    board.Reload()
    assert [event.step for event in board.Scalars("objective/loss")] == list(range(1, steps + 1))


def test_the_warm_up_goes_on_after_a_signal(batch, tiny_model, tmp_path):
    run_dir, log = tmp_path / "run", tmp_path / "log"
    own = [
        f"run_dir={run_dir}",
        f"model.path={tiny_model}",
        "model.dtype=float32",
        "task={name: arithmetic}",
        "max_response_tokens=4",
        "training.max_steps=1000000",
        "training.learning_rate={kind: constant, value: 0.001}",
        "evaluation.problems=0",
    ]
    options = ["--gpus-per-node=0", "--cpus-per-task=1", f"--output={log}"]
    job = batch.sbatch(*options, "slurm/tba_gsm8k_sft.sbatch", *own)
    batch.wait_for_steps(run_dir, 3, log)
    batch.call("scancel", "--signal=USR1", job)
    wait_until(lambda: "is requeued to go on with it" in read(log), 60, lambda: read(log))
    (saved,) = re.findall(r"saved after step (\d+) \(received SIGUSR1\)", read(log))
    batch.wait_for_steps(run_dir, int(saved) + 3, log)
    batch.call("scancel", job)
    assert len(attempts_in(log)) == 2
    steps = steps_of(run_dir)
    assert steps == list(range(1, len(steps) + 1))


def test_a_sweep_is_a_job_array_whose_jobs_have_results_of_their_own(batch, tiny_run, tmp_path, monkeypatch):
    """One is interrupted by submitit's signal and goes on, one is cancelled, one is left alone."""
    for name in ("SLURM_CONF", "PATH", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, batch.environment[name])
    monkeypatch.chdir(ROOT)
    overrides = {"run_dir": tmp_path / "runs", "checkpoint.every_steps": 5}
    steps = [6, 2000, 201]
    job = {"nodes": 2, "ranks_per_node": 1, "minutes": 10, "folder": tmp_path / "submitit"}
    jobs = submit_sweep(tiny_run, {"trainer.steps": steps}, overrides=overrides, **job)
    _alone, cancelled, interrupted = (
        Job(submitted.job_id, submitted.paths.stdout, tmp_path / "runs" / f"steps={n}")
        for submitted, n in zip(jobs, steps, strict=True)
    )

    batch.wait_for_steps(interrupted.run_dir, 3, interrupted.log)
    batch.call("scancel", "--batch", "--signal=USR2", interrupted.id)
    batch.wait_for_steps(cancelled.run_dir, 3, cancelled.log)
    batch.call("scancel", cancelled.id)

    wait_until(lambda: jobs[0].paths.result_pickle.exists(), 60, lambda: jobs[0].stdout())
    wait_until(lambda: jobs[2].paths.result_pickle.exists(), 100, lambda: jobs[2].stdout())
    assert [job.result()["steps"] for job in (jobs[0], jobs[2])] == [6, 201]
    assert steps_of(interrupted.run_dir) == list(range(1, 202))
    assert batch.state(cancelled.id) == "CANCELLED"
    assert not (cancelled.run_dir / "report.json").exists()
