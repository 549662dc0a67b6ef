"""Whether the launcher and the MPI library speak to each other and give what a run needs: the first thing a rank asks,
so nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping

from mpi4py import MPI

from tba_hpc.settings import ConfigError


def check_launcher(size: int, thread_level: int, environment: Mapping[str, str]) -> None:
    """Raises `ConfigError` where MPI may not be called from several threads at once, as a rank's communication thread
    and its main thread do; and where srun started several tasks that do not see each other: each would be a world of
    one, and N independent runs would overwrite one another's files."""
    if thread_level < MPI.THREAD_MULTIPLE:
        raise ConfigError(
            f"the MPI library ({_library()}) was not started with MPI_THREAD_MULTIPLE, which a run needs: unset "
            "MPI4PY_RC_THREAD_LEVEL and MPI4PY_RC_THREADS, or use an MPI built with thread support"
        )
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS") or 1)
    if size == 1 and tasks > 1:
        raise ConfigError(
            f"srun started {tasks} tasks but MPI sees a world of 1: the --mpi choice of srun does not fit "
            f"the MPI library ({_library()}). "
            "Use `srun --mpi=pmi2` with MPICH and its kin, `srun --mpi=pmix` with Open MPI; "
            "`srun --mpi=list` shows what this Slurm offers."
        )


def _library() -> str:
    return MPI.Get_library_version().splitlines()[0].strip()
