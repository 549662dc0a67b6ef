"""How a run comes to be asked to save and leave: by a signal, or by the end of its job."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping

SAVED_EXIT_CODE = os.EX_TEMPFAIL
"""75: the run has saved itself and wants to go on. What starts ranks turns it into a requeue."""

END_TIME_VARIABLE = "TBA_HPC_END_TIME"
"""Environment variable by which what starts ranks tells them when the job ends, in seconds since the epoch."""

SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
"""USR1 is what the project's scripts send, USR2 submitit's, TERM what Slurm sends before it kills."""


class Interruption:
    """Whether this process has been asked to save and leave.

    A signal is noticed at once, from any thread and also while the main thread is inside a library, where Python would
    not run a handler: the interpreter writes its number into a socket, which is what is looked at here."""

    def __init__(self) -> None:
        """Takes over `SIGNALS`. For the main thread."""
        self.watching_since = time.time()
        """Seconds since the epoch: about when this process began."""
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self._signal: signal.Signals | None = None
        signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, _ignore)

    @property
    def signal(self) -> signal.Signals | None:
        """The first of `SIGNALS` that came."""
        if self._signal is None:
            try:
                received = self._receiver.recv(64)
            except BlockingIOError:
                return None
            self._signal = next((signal.Signals(number) for number in received if number in SIGNALS), None)
        return self._signal

    def has_come(self) -> bool:
        return self.signal is not None


def _ignore(*_: object) -> None:
    """A handler: without one the signal would end the process."""


def job_end(environment: Mapping[str, str]) -> float | None:
    """When the job that this process is part of ends, in seconds since the epoch; None where nothing tells."""
    for name in (END_TIME_VARIABLE, "SLURM_JOB_END_TIME"):
        if environment.get(name, "").isdigit():
            return float(environment[name])
    if "SLURM_JOB_ID" in environment:
        return _asked_of_slurm(environment["SLURM_JOB_ID"])
    return None


def _asked_of_slurm(job_id: str) -> float | None:
    try:
        words = ["squeue", "--noheader", "--jobs", job_id, "--format=%e"]
        answer = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout.split()
        return time.mktime(time.strptime(answer[0], "%Y-%m-%dT%H:%M:%S"))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


class Deadline:
    """The moment at which a run has to begin its last save to be done before its job ends."""

    def __init__(self, end: float | None, margin_seconds: float) -> None:
        """`end` in seconds since the epoch; None for a job without one."""
        self._end = end
        self._margin = margin_seconds
        self._last_look = time.time()
        self._longest_pause = 0.0

    def has_come(self, save_seconds: float) -> bool:
        """Whether to leave now, given how long a save takes. To be asked again and again: who asks every 20 seconds,
        between two steps, must leave 20 seconds earlier."""
        now = time.time()
        self._longest_pause = max(self._longest_pause, now - self._last_look)
        self._last_look = now
        return self._end is not None and now + self._longest_pause + save_seconds + self._margin >= self._end


def job_deadline(
    interruption: Interruption, walltime_seconds: float | None, save_before_end: float, environment: Mapping[str, str]
) -> Deadline:
    """That of the job which this process is part of: `walltime_seconds` after it began, or else when `job_end` tells.
    Raises `RuntimeError` if it has come already: the run would be requeued for ever."""
    end = interruption.watching_since + walltime_seconds if walltime_seconds else job_end(environment)
    deadline = Deadline(end, save_before_end)
    if deadline.has_come(save_seconds=0):
        raise RuntimeError(
            f"the job is too short: it ends within launch.save_before_end = {save_before_end:.0f} s, before training "
            "has begun; ask for more time, or set launch.save_before_end lower"
        )
    return deadline
