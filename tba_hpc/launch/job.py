"""What a submitit job does: it starts the ranks, stays beside them, and is started again once they have saved."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from submitit import JobEnvironment
from submitit.helpers import DelayedSubmission
from submitit.local.local import LOCAL_REQUEUE_RETURN_CODE

from tba_hpc.interruption import END_TIME_VARIABLE, SAVED_EXIT_CODE
from tba_hpc.launch.command import rank_command
from tba_hpc.launch.local import local_environment, local_words
from tba_hpc.launch.slurm import requeue, srun_words, supervise_srun
from tba_hpc.launch.supervise import supervise
from tba_hpc.run_dir import RunDir

Summary = dict[str, Any]
"""The `report.json` of a finished run."""
_LOG_LINES = 30


@dataclass(frozen=True)
class TrainingJob:
    """One run. Plain values only: submitit pickles it for the job, where it goes on from the run's newest checkpoint,
    however often the job is started."""

    config: str
    """Absolute path."""
    overrides: tuple[str, ...]
    run_dir: str
    """Absolute path."""
    cluster: Literal["slurm", "local"]
    ranks: int
    minutes: int
    mpi: str
    srun_args: tuple[str, ...]

    def __call__(self) -> Summary:
        """Waits for the ranks, as `supervise` does. Raises `RuntimeError` if they fail, `NotRequeuedError` if the run
        has saved itself and cannot go on."""
        started = time.time()
        code = self._run_ranks(dict(os.environ))
        if code == SAVED_EXIT_CODE:
            self._leave_to_go_on()
        if code != 0:
            raise RuntimeError(_failure(code, JobEnvironment().paths.stdout, time.time() - started))
        return RunDir(Path(self.run_dir)).read_report()

    def checkpoint(self) -> DelayedSubmission:
        """For submitit, where its signal comes while there are no ranks yet to save anything."""
        return DelayedSubmission(self)

    def _run_ranks(self, environment: Mapping[str, str]) -> int:
        command = rank_command(Path(self.config), self.overrides, resume="auto")
        if self.cluster == "slurm":
            return supervise_srun(srun_words(command, environment, self.mpi, self.srun_args), environment)
        end = {END_TIME_VARIABLE: str(int(time.time() + 60 * self.minutes))}
        return supervise(local_words(command, self.ranks, None), local_environment({**environment, **end}))

    def _leave_to_go_on(self) -> None:
        """Ends this process without a result, so that for submitit the job has not finished."""
        if self.cluster == "local":
            sys.exit(LOCAL_REQUEUE_RETURN_CODE)
        requeue(os.environ)
        sys.exit(SAVED_EXIT_CODE)


def _failure(code: int, log: Path, seconds: float) -> str:
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            last = "".join(deque(lines, _LOG_LINES))
    except OSError as error:
        last = f"(not readable: {error.strerror})"
    return f"the ranks ended with exit code {code} after {seconds:.0f} s. Last lines of {log}:\n{last}"
