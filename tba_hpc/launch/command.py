"""The command line of one rank, built in one place for every launcher."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
_SIZE_VARIABLES = ("SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_OF_A_RANK = re.compile(r"PMI_|PMIX_(?!MCA_)|OMPI_COMM_WORLD_|MPI_LOCAL")
_OF_A_JOB = re.compile(r"SLURM_(?!CONF$)|SLURMD_|SRUN_|SBATCH_|SUBMITIT_")


def rank_command(
    config: Path,
    overrides: Sequence[str],
    overwrite: bool = False,
    resume: str | None = None,
    command: Literal["train", "sft"] = "train",
) -> list[str]:
    """What a launcher has to start on every rank, as a list of words that no shell needs to see."""
    flags = ["--overwrite"] if overwrite else []
    if resume is not None:
        flags += ["--resume", resume]
    return [sys.executable, "-m", "tba_hpc", command, str(config), *flags, *overrides]


def inside_mpi_world(environment: Mapping[str, str]) -> bool:
    """Whether a launcher has started this process as one of several ranks. A srun step of several tasks counts even if
    its MPI plugin set no rank, so that the mismatch is reported and not N times N ranks are started."""
    return any(name in environment for name in _RANK_VARIABLES) or launched_tasks(environment) > 1


def launched_tasks(environment: Mapping[str, str]) -> int:
    """How many tasks a launcher has started together with this process, itself included."""
    return max(int(environment.get(name) or 1) for name in _SIZE_VARIABLES)


def without_rank(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment less what makes a process the rank of a launcher, as the shell of an interactive job inherits it:
    a launcher started from there would take it for its own."""
    return {name: value for name, value in environment.items() if not _OF_A_RANK.match(name)}


def without_job(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment less what tells of a Slurm job as well: mpiexec would start its ranks over all nodes of it."""
    return {name: value for name, value in without_rank(environment).items() if not _OF_A_JOB.match(name)}
