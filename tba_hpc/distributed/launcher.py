"""Whether the launcher and the MPI library speak to each other: the first thing a rank asks, so nothing heavy is
imported."""

from __future__ import annotations

from collections.abc import Mapping

from mpi4py import MPI

from tba_hpc.settings import ConfigError


def check_launcher(size: int, environment: Mapping[str, str]) -> None:
    """Raises `ConfigError` where srun started several tasks that do not see each other: each would be a world of one,
    and N independent runs would overwrite one another's files."""
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS") or 1)
    if size == 1 and tasks > 1:
        raise ConfigError(
            f"srun started {tasks} tasks but MPI sees a world of 1: the --mpi choice of srun does not fit "
            f"the MPI library ({MPI.Get_library_version().splitlines()[0].strip()}). "
            "Use `srun --mpi=pmi2` with MPICH and its kin, `srun --mpi=pmix` with Open MPI; "
            "`srun --mpi=list` shows what this Slurm offers."
        )
