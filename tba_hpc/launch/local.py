"""Starting a run on this machine, by mpiexec."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tba_hpc.interruption import END_TIME_VARIABLE, job_end
from tba_hpc.launch.command import without_job
from tba_hpc.progress import TERMINAL_COLUMNS
from tba_hpc.settings import ConfigError


def mpiexec_words(given: str | None) -> list[str]:
    """The launcher to use: the one given (it may bring options of its own), else the one installed beside this Python,
    which belongs to the MPI wheel in the same environment, else the first on PATH. Raises `ConfigError` if there is
    none."""
    if given:
        return shlex.split(given)
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise ConfigError("no mpiexec found: load the site's MPI module, or `pip install 'tba_hpc[mpich]'`")
    return [found]


def local_words(command: Sequence[str], ranks: int, mpiexec: str | None) -> list[str]:
    """The launcher that starts `command` on `ranks` ranks of this machine. Raises `ConfigError` if there is none."""
    return [*mpiexec_words(mpiexec), "-n", str(ranks), *command]


def local_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` for ranks that stay on this machine also inside a job, whose end they still get to know."""
    outside = without_job(environment)
    if end := job_end(environment):
        outside[END_TIME_VARIABLE] = str(int(end))
    return outside


def run_local(command: Sequence[str], ranks: int, mpiexec: str | None) -> NoReturn:
    """Becomes the launcher that runs `command` on `ranks` ranks of this machine: its exit code is that of this process,
    and signals reach it without a middleman that could leave it behind. Raises `ConfigError` if it cannot start."""
    environment = local_environment(os.environ)
    if sys.stdout.isatty():
        environment[TERMINAL_COLUMNS] = str(shutil.get_terminal_size().columns)
    words = local_words(command, ranks, mpiexec)
    try:
        os.execvpe(words[0], words, environment)
    except OSError as error:
        raise ConfigError(f"cannot start the MPI launcher {words[0]!r}: {error.strerror}") from error
