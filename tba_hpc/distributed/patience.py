"""Bounded waits of the exchange, and how the leader comes to know whom it waits for.

A collective does not tell who is missing. So a member that has itself waited long, for a round or inside one, says so
to the leader, point to point; when the leader's bound has passed, those who said nothing are the ones it names. Members
that wait for a round count too: its control record travels down a tree and may have got stuck above them. A round that
goes well costs no message.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from tba_hpc.distributed.waiting import wait_until

_REPORT_TAG = 7
_REPORT_AFTER = 0.5  # of the bound
_LISTEN_SECONDS = 0.2  # for one more report, once the bound has passed
_MEMBER_BOUND = 1.5  # of the bound: the leader, who can name the culprit, gives up first


class LeaderPatience:
    """Trainer 0's waits."""

    def __init__(self, comm: MPI.Intracomm, seconds: float) -> None:
        self._comm = comm
        self._seconds = seconds

    def wait(self, done: Callable[[], bool], round_number: int, what: str) -> None:
        """Raises `TimeoutError` naming the searchers that have not come so far in this round."""
        if not wait_until(done, self._seconds):
            missing = self._missing(round_number)
            raise TimeoutError(
                f"round {round_number}, {what}: after {self._seconds:.0f} s still nothing from {missing}"
            )

    def _missing(self, round_number: int) -> str:
        waiting, report, status = set(), np.zeros(1, np.int64), MPI.Status()
        # Not once: where it was weights that were waited for, nothing has moved MPI's messages for long.
        while wait_until(lambda: self._comm.Iprobe(MPI.ANY_SOURCE, _REPORT_TAG), _LISTEN_SECONDS):
            self._comm.Recv(report, MPI.ANY_SOURCE, _REPORT_TAG, status)
            if report[0] >= round_number:
                waiting.add(status.Get_source())
        missing = [rank for rank in range(1, self._comm.size) if rank not in waiting]
        return ", ".join(f"searcher {rank - 1}" for rank in missing) or "the network (every searcher waits too)"


class MemberPatience:
    """A searcher's waits."""

    def __init__(self, comm: MPI.Intracomm, seconds: float) -> None:
        self._comm = comm
        self._seconds = seconds
        self._reports: list[MPI.Request] = []

    def wait(self, done: Callable[[], bool], round_number: int, what: str) -> None:
        """Waits inside a round. Raises `TimeoutError`."""
        self._wait(done, round_number, what, longest_pause=2e-3)

    def wait_for_round(self, done: Callable[[], bool], round_number: int) -> None:
        """Waits for a round to start, while nothing is in flight and pauses may be longer. Raises `TimeoutError`."""
        self._wait(done, round_number, "control record", longest_pause=5e-3)

    def _wait(self, done: Callable[[], bool], round_number: int, what: str, longest_pause: float) -> None:
        if wait_until(done, self._seconds * _REPORT_AFTER, longest_pause):
            return
        report = self._comm.Isend(np.array([round_number], np.int64), 0, _REPORT_TAG)
        self._reports.append(report)

        def done_after_all() -> bool:
            report.Test()  # moves it along where `done` does not call MPI
            return done()

        if not wait_until(done_after_all, self._seconds * (_MEMBER_BOUND - _REPORT_AFTER), longest_pause):
            raise TimeoutError(
                f"round {round_number}, {what}: after {self._seconds * _MEMBER_BOUND:.0f} s still nothing "
                "from trainer 0"
            )
