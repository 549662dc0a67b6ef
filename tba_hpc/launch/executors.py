"""submitit's executors, set up so that one task of theirs stands for all ranks of a run."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import submitit
from pydantic import Field
from submitit.helpers import clean_env
from submitit.slurm.slurm import _make_sbatch_string

from tba_hpc.interruption import END_TIME_VARIABLE
from tba_hpc.launch.command import inside_mpi_world, without_job
from tba_hpc.settings import ConfigError, Integer, PositiveInt, Settings

_MOST_RESTARTS = 1_000_000
"""submitit would give up after three: `trainer.steps` says how long a run goes on."""


class JobSettings(Settings):
    """What a run asks of the cluster."""

    nodes: PositiveInt = 1
    ranks_per_node: PositiveInt
    minutes: PositiveInt
    """Time limit. A run that has not finished by then saves itself, and the job is started again."""
    gpus_per_node: Integer = Field(0, ge=0)
    cpus_per_task: PositiveInt = 1
    partition: str | None = None
    account: str | None = None
    sbatch: dict[str, str | int | bool] = Field(default_factory=dict)
    """More options of sbatch by their long names: `{"qos": "long", "exclusive": True}`."""
    setup: tuple[str, ...] = ()
    """Shell lines that go before the run in the batch script, as `module load cuda`."""
    mpi: str | None = None
    """The `--mpi` choice of srun; that of the environment variable TBA_HPC_MPI, or else pmi2, when not given."""
    srun_args: tuple[str, ...] | None = None
    """More options of srun; those of the environment variable TBA_HPC_SRUN_ARGS when not given."""
    signal_seconds: PositiveInt = 120
    """How long before the time limit the run is asked to save itself, should it not have done so by itself."""
    cluster: Literal["slurm", "local"] = "slurm"
    """`local`: all ranks on this machine, under mpiexec; submitit starts them again five times at most."""
    name: str = "tba"
    folder: Path = Path("runs/submitit")
    """Where submitit keeps scripts, logs and results; all nodes must see it."""

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


def slurm_executor(settings: JobSettings) -> submitit.SlurmExecutor:
    """submitit's task is the batch script itself, which starts the ranks. Raises `ConfigError` where Slurm is not."""
    if not shutil.which("srun"):
        raise ConfigError("no Slurm here (srun is not on PATH): go to a login node, or take cluster = local")
    # exec: Slurm's signal is for the first process of the batch script.
    python = f"exec {shlex.quote(sys.executable)}"
    executor = submitit.SlurmExecutor(settings.folder, max_num_timeout=_MOST_RESTARTS, python=python)
    executor.update_parameters(
        job_name=settings.name,
        time=settings.minutes,
        cpus_per_task=settings.cpus_per_task,
        gpus_per_node=settings.gpus_per_node or None,
        partition=settings.partition,
        account=settings.account,
        setup=list(settings.setup) or None,
        stderr_to_stdout=True,
        use_srun=False,
        additional_parameters={
            # Not as submitit's own parameters: it would wait for the results of so many tasks.
            "nodes": settings.nodes,
            "ntasks-per-node": settings.ranks_per_node,
            "signal": f"B:USR2@{settings.signal_seconds}",
            "requeue": True,
            **settings.sbatch,
        },
    )
    return executor


def batch_text(executor: submitit.SlurmExecutor, runs: int) -> str:
    """The batch script for so many runs. Private to submitit, which shows it only once it has submitted it."""
    text: str = _make_sbatch_string(
        executor._submitit_command_str, executor.folder, map_count=runs if runs > 1 else None, **executor.parameters
    )
    return text


def local_executor(settings: JobSettings) -> submitit.LocalExecutor:
    executor = submitit.LocalExecutor(settings.folder, max_num_timeout=_MOST_RESTARTS)
    executor.update_parameters(
        timeout_min=settings.minutes,
        gpus_per_node=settings.gpus_per_node,
        signal_delay_s=settings.signal_seconds,
        stderr_to_stdout=True,
        setup=list(settings.setup),
    )
    return executor


@contextmanager
def outside_any_job() -> Iterator[None]:
    """While nothing in the environment tells of a job or a launcher around this process: a job submitted from here
    would take it for its own. Where there is none, the user's SBATCH_ variables stay in force."""
    if "SLURM_JOB_ID" not in os.environ and not inside_mpi_world(os.environ):
        yield
        return
    configuration = os.environ.get("SLURM_CONF")
    foreign = os.environ.keys() - without_job(os.environ).keys()
    with clean_env([*foreign, END_TIME_VARIABLE]):
        if configuration:
            os.environ["SLURM_CONF"] = configuration  # where Slurm is, not which job this is
        yield
