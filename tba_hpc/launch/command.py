"""The command line of one rank, built in one place for every launcher."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")


def rank_command(config: Path, overrides: Sequence[str], overwrite: bool) -> list[str]:
    """What an MPI launcher has to start on every rank, as a list of words that no shell needs to see."""
    flags = ["--overwrite"] if overwrite else []
    return [sys.executable, "-m", "tba_hpc", "train", str(config), *flags, *overrides]


def inside_mpi_world(environment: Mapping[str, str]) -> bool:
    """Whether a launcher has started this process as one of several ranks. A srun step of several tasks counts even if
    its MPI plugin set no rank, so that the mismatch is reported and not N times N ranks are started."""
    return any(name in environment for name in _RANK_VARIABLES) or int(environment.get("SLURM_STEP_NUM_TASKS") or 1) > 1
