"""Runs as jobs from a Python program, by submitit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError

from tba_hpc.config import load_run_config
from tba_hpc.launch.executors import JobSettings, batch_text, local_executor, outside_any_job, slurm_executor
from tba_hpc.launch.job import Summary, TrainingJob
from tba_hpc.launch.overrides import Overrides, override_words
from tba_hpc.launch.slurm import mpi_choice, srun_arguments
from tba_hpc.launch.sweep import Grid, sweep_points
from tba_hpc.settings import ConfigError, validate

_SIGNAL_GRAIN_SECONDS = 60
"""Slurm may send its signal this much early."""


def submit(config: Path | str, *, overrides: Overrides = (), **job: Any) -> submitit.Job[Summary]:
    """Submits one run; `job` are the settings of `JobSettings`. The job's `result()` is the run's `report.json`.

    Raises `ConfigError`, before anything is submitted, if the run or the job cannot be."""
    settings = _job_settings(job)
    return _submit([_training_job(config, overrides, settings)], settings)[0]


def submit_sweep(
    config: Path | str, grid: Grid, *, overrides: Overrides = (), **job: Any
) -> list[submitit.Job[Summary]]:
    """Submits a run for each combination of the values in `grid`, as one job array. Each run has a `run_dir` of its
    own, named after its settings, inside that of the configuration.

    Raises `ConfigError` as `submit` does, and if two runs would share a `run_dir`."""
    settings = _job_settings(job)
    return _submit(_training_jobs(config, grid, overrides, settings), settings)


def batch_script(config: Path | str, grid: Grid | None = None, *, overrides: Overrides = (), **job: Any) -> str:
    """The script that `submit`, or `submit_sweep` where there is a grid, would give to sbatch. Raises `ConfigError` as
    they do."""
    settings = _job_settings(job)
    runs = len(_training_jobs(config, grid, overrides, settings))
    return batch_text(slurm_executor(settings), runs)


def describe(job: submitit.Job[Summary]) -> str:
    """One line about a job submitted here."""
    run: Any = job.submission().function
    return f"job {job.job_id}: run_dir {run.run_dir}, log {job.paths.stdout}"


def _job_settings(job: Mapping[str, Any]) -> JobSettings:
    settings = validate(JobSettings, dict(job), "settings of the job")
    if settings.minutes * 60 <= settings.signal_seconds + _SIGNAL_GRAIN_SECONDS:
        raise ConfigError(
            f"minutes = {settings.minutes} is too short for signal_seconds = {settings.signal_seconds}, to which Slurm "
            f"may add {_SIGNAL_GRAIN_SECONDS}: each attempt would be asked to save itself as soon as it has started"
        )
    return settings


def _training_jobs(
    config: Path | str, grid: Grid | None, overrides: Overrides, settings: JobSettings
) -> list[TrainingJob]:
    """One without a grid."""
    single = _training_job(config, overrides, settings)
    if grid is None:
        return [single]
    words = override_words(overrides)
    points = sweep_points(grid, Path(single.run_dir))
    return [_training_job(config, [*words, *override_words(point)], settings) for point in points]


def _training_job(config: Path | str, overrides: Overrides, settings: JobSettings) -> TrainingJob:
    path, words = Path(config).absolute(), override_words(overrides)
    run = load_run_config(path, words)
    run.check_world(settings.ranks)
    return TrainingJob(
        config=str(path),
        overrides=tuple(words),
        run_dir=str(run.run_dir.absolute()),
        cluster=settings.cluster,
        ranks=settings.ranks,
        minutes=settings.minutes,
        mpi=settings.mpi or mpi_choice(os.environ),
        srun_args=tuple(srun_arguments(os.environ)) if settings.srun_args is None else settings.srun_args,
    )


def _submit(runs: list[TrainingJob], settings: JobSettings) -> list[submitit.Job[Summary]]:
    executor = slurm_executor(settings) if settings.cluster == "slurm" else local_executor(settings)
    try:
        with outside_any_job():
            jobs: list[submitit.Job[Summary]] = executor.submit_array(runs)
    except FailedJobError as error:
        raise ConfigError(f"sbatch refused the job: {error}") from error
    return jobs
