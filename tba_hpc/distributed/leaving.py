"""The end of a rank."""

from __future__ import annotations

import signal
import time

from mpi4py import MPI

from tba_hpc.interruption import SAVED_EXIT_CODE, SIGNALS

_HEAD_START_SECONDS = 2.0


def leave(code: int) -> None:
    """Ends MPI before this rank exits. If its exit code asks for another job, it lets the others, who exit with 0, go
    first.

    A launcher told to end the job at the first bad exit signals whoever is still there, and reports the code of one
    that dies of it; and taking a Python process with torch apart takes a second. So signals are ignored from now on:
    unlike a handler, that lasts until the very end of the process."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    MPI.Finalize()
    if code == SAVED_EXIT_CODE:
        time.sleep(_HEAD_START_SECONDS)
