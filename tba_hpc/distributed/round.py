"""One round of the exchange between trainer 0 and the searchers: the only collectives there are, in one fixed order.

1. `Ibcast` of a `CONTROL` record from trainer 0: which round, and what it is for.
2. `Igather` of one `HEADER` a searcher: how many bytes it brings, and how it is doing.
3. `Ibcast` of the number of chunks the largest share takes, so that all post the same gathers.
4. That many `Igatherv` of packed trajectories. Zero bytes is a legal share.

If the control record says that weights follow, they do so on the weight channel, after the round.
The communicator holds trainer 0 as rank 0 and the searchers as ranks 1 … n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from tba_hpc.distributed.patience import LeaderPatience, MemberPatience

CONTROL = np.dtype(
    [
        ("round", "<i8"),
        ("flags", "<i8"),
        ("policy_version", "<i8"),  # of the weights that follow, if they do
        ("manifest", "<i8"),  # fingerprint of what the weights consist of
    ]
)
HEADER = np.dtype(
    [
        ("payload_bytes", "<i8"),
        ("trajectories", "<i8"),  # in the payload
        ("generated", "<i8"),  # trajectories in all
        ("tokens", "<i8"),  # response tokens in all
        ("policy_version", "<i8"),  # in use now; -1 before the first
        ("busy_seconds", "<f8"),  # in all, generating and scoring
        ("waiting_seconds", "<f8"),  # in all, for weights or for the outbox to be emptied
        ("idle_seconds", "<f8"),  # since the last generation batch ended
        ("interrupted", "<i8"),  # 1 once a signal has asked this rank to save and leave
        ("evaluation", "<i8"),  # version that the last evaluation was asked for at; 0 before the first
        ("evaluation_version", "<i8"),  # version that it was made with
        ("evaluation_problems", "<i8"),  # of this searcher's share
        ("evaluation_correct", "<i8"),  # of these
    ]
)
_ALIGNMENT = 8


class Flag(IntFlag):
    """What a round is for besides collecting trajectories."""

    WEIGHTS = 1
    STOP = 2
    RESET_REFERENCE = 4
    """The weights that follow are those of the new reference policy, too."""
    EVALUATE = 8
    """Searchers answer their share of the held-out problems with the weights that follow, or newer ones."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What the searchers brought, by searcher index."""

    headers: NDArray[np.void]
    """`[n]` of `HEADER`"""
    payloads: list[NDArray[np.uint8]]


def effective_chunk(chunk_bytes: int, n_searchers: int) -> int:
    """Bytes one searcher may send in one gather: the sum over searchers must stay countable in 31 bits."""
    limit = min(chunk_bytes, (2**31 - 1) // n_searchers)
    return max(limit // _ALIGNMENT, 1) * _ALIGNMENT


class RoundLeader:
    """Trainer 0's side of the rounds."""

    def __init__(self, comm: MPI.Intracomm, chunk_bytes: int, patience: LeaderPatience) -> None:
        self._comm = comm
        self._chunk = effective_chunk(chunk_bytes, comm.size - 1)
        self._patience = patience
        self.number = 0
        """Rounds started so far."""

    def run(self, flags: Flag, policy_version: int, manifest: int) -> Collected:
        """Waits for every searcher's communication thread, never for its generation. Raises `TimeoutError`."""
        self.number += 1
        control = np.array([(self.number, flags, policy_version, manifest)], CONTROL)
        self.wait(self._comm.Ibcast([control, MPI.BYTE]).Test, "control record")
        headers = np.zeros(self._comm.size, HEADER)
        self.wait(self._comm.Igather([np.zeros(1, HEADER), MPI.BYTE], [headers, MPI.BYTE]).Test, "headers")
        sizes = headers["payload_bytes"]
        chunks = np.array([-(-int(sizes.max()) // self._chunk)], np.int64)
        self.wait(self._comm.Ibcast([chunks, MPI.BYTE]).Test, "number of chunks")
        return Collected(headers[1:], self._gather(sizes, int(chunks[0])))

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Waits for an operation of the current round. Raises `TimeoutError` naming who is missing."""
        self._patience.wait(done, self.number, what)

    def _gather(self, sizes: NDArray[np.int64], n_chunks: int) -> list[NDArray[np.uint8]]:
        """Payload bytes by searcher; with a single chunk they are views of the receive buffer."""
        parts: list[list[NDArray[np.uint8]]] = [[] for _ in sizes]
        for chunk in range(n_chunks):
            counts = np.clip(sizes - chunk * self._chunk, 0, self._chunk)
            room = -(-counts // _ALIGNMENT) * _ALIGNMENT
            starts = np.cumsum(room) - room
            buffer = np.empty(int(room.sum()), np.uint8)
            request = self._comm.Igatherv([np.empty(0, np.uint8), MPI.BYTE], [buffer, counts, starts, MPI.BYTE])
            self.wait(request.Test, f"trajectories, chunk {chunk + 1} of {n_chunks}")
            for part, start, count in zip(parts, starts, counts, strict=True):
                part.append(buffer[start : start + count])
        empty = np.empty(0, np.uint8)
        return [part[0] if len(part) == 1 else np.concatenate([empty, *part]) for part in parts[1:]]


class RoundMember:
    """A searcher's side of the rounds."""

    def __init__(self, comm: MPI.Intracomm, chunk_bytes: int, patience: MemberPatience) -> None:
        self._comm = comm
        self._chunk = effective_chunk(chunk_bytes, comm.size - 1)
        self._patience = patience
        self._control = np.zeros(1, CONTROL)
        self._request: MPI.Request | None = None
        self.number = 0
        """Number of the round announced last."""

    def post(self) -> None:
        """Posts the receive of the next control record, so that trainer 0 never waits for it to be posted."""
        self._request = self._comm.Ibcast([self._control, MPI.BYTE])

    def next_control(self) -> np.void:
        """The next round's control record. Waits for trainer 0 to start one. Raises `TimeoutError`."""
        assert self._request is not None, "post() comes first"
        self._patience.wait_for_round(self._request.Test, self.number + 1)
        self._request = None
        record: np.void = self._control[0].copy()
        self.number = int(record["round"])
        return record

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Waits for an operation of the current round. Raises `TimeoutError`."""
        self._patience.wait(done, self.number, what)

    def contribute(self, header: NDArray[np.void], payload: NDArray[np.uint8]) -> None:
        """Sends this searcher's share of the round announced last. `header [1]` of `HEADER`."""
        header["payload_bytes"] = len(payload)
        self.wait(self._comm.Igather([header, MPI.BYTE], None).Test, "header")
        chunks = np.zeros(1, np.int64)
        self.wait(self._comm.Ibcast([chunks, MPI.BYTE]).Test, "number of chunks")
        for chunk in range(int(chunks[0])):
            part = payload[chunk * self._chunk : (chunk + 1) * self._chunk]
            self.wait(self._comm.Igatherv([part, MPI.BYTE], None).Test, f"trajectories, chunk {chunk + 1}")
