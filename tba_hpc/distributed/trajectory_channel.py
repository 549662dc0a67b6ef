"""What a searcher has ready for the next round, and what trainer 0 makes of the bytes it collected."""

from __future__ import annotations

import threading
import time

import numpy as np
from numpy.typing import NDArray

from tba_hpc.codec import CodecError, pack, unpack
from tba_hpc.distributed.round import Collected
from tba_hpc.trajectory import TrajectoryBatch


class Outbox:
    """Trajectories of a searcher between their making and the next round. Filled by the main thread, emptied by the
    communication thread."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._batches: list[TrajectoryBatch] = []
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = False

    def wait_for_room(self, seconds: float) -> float:
        """Waits while more than the limit is pending, until a round takes it or `close` ends the run. Returns the
        seconds waited. Raises `TimeoutError` after `seconds`.

        To be called before generating: what is generated after the wait, with the weights of then, is fresher than what
        would have waited itself."""
        started = time.monotonic()
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or self._bytes <= self._limit, seconds):
                raise TimeoutError(f"no round of trainer 0 took the {self._bytes} pending bytes within {seconds:.0f} s")
        return time.monotonic() - started

    def offer(self, batch: TrajectoryBatch) -> None:
        """Queues a batch for the next round."""
        with self._changed:
            self._batches.append(batch)
            self._bytes += batch.nbytes

    def take(self) -> TrajectoryBatch:
        """Everything queued so far, which leaves the outbox empty. Who waits for room goes on at `announce_room`."""
        with self._changed:
            batches, self._batches, self._bytes = self._batches, [], 0
        return TrajectoryBatch.concatenate(batches)

    def announce_room(self) -> None:
        """The round that took the trajectories is over, weights included: who waited for room has the newest."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """No more rounds will come: nobody needs to wait any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def to_payload(batch: TrajectoryBatch) -> NDArray[np.uint8]:
    """Bytes for a round; none at all for an empty batch."""
    return pack(batch) if len(batch) else np.empty(0, np.uint8)


def from_payloads(collected: Collected) -> list[TrajectoryBatch]:
    """One batch a searcher. Raises `CodecError` naming the searcher whose bytes are damaged."""
    batches = []
    for searcher, payload in enumerate(collected.payloads):
        try:
            batches.append(unpack(payload) if len(payload) else TrajectoryBatch.empty())
        except CodecError as error:
            raise CodecError(f"payload of searcher {searcher}: {error}") from error
    return batches
