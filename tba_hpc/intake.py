"""How what the searchers send gets into the replay buffer, and when there is enough of it to learn from."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tba_hpc.config import RunConfig
from tba_hpc.distributed.trainer_exchange import Arrival, TrainerExchange
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.trajectory import TrajectoryBatch

_ROUND_SECONDS = 1.0  # longest wait for one round before its caller looks at its own bound


class Intake:
    """Asynchronous: whatever arrives goes into the buffer at once, and the trainer waits only for the first
    `buffer.start_size` trajectories and where `trainer.max_reuse` bounds how far it may run ahead of the searchers."""

    def __init__(self, config: RunConfig, exchange: TrainerExchange, buffer: ReplayBuffer) -> None:
        self._config = config
        self._exchange = exchange
        self._buffer = buffer
        self._sync = -1
        self.received = 0
        """Trajectories that have arrived, duplicates included."""
        self.duplicates = 0
        """Of these, exact duplicates of one held already."""
        self.last: Arrival | None = None
        """The latest round's arrival, whose headers tell how the searchers are doing."""
        self.latest_sync: list[TrajectoryBatch] = []
        """What the latest sync and the rounds after it have brought: how the policy does now, duplicates included."""

    def prepare(self, step: int) -> float:
        """Takes in what has arrived and waits until step `step` (0, 1, …) has data to learn from. Returns the seconds
        waited. Raises `TimeoutError` telling how long each searcher has been silent if nothing comes for too long."""
        started = time.monotonic()
        self._take(self._exchange.arrivals())
        self._wait_until(lambda: self.received >= self._needed(step), f"the data of step {step}")
        return time.monotonic() - started

    def _needed(self, step: int) -> float:
        reuse = self._config.trainer.max_reuse
        used = (step + 1) * self._config.trainer.batch_size
        return max(self._config.buffer.start_size, used / reuse if reuse else 0)

    def _take(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            self.last = arrival
            self._add(TrajectoryBatch.concatenate(arrival.batches), arrival.sync)

    def _add(self, batch: TrajectoryBatch, sync: int) -> None:
        if len(batch):
            if sync != self._sync:
                self._sync, self.latest_sync = sync, []
            self.latest_sync.append(batch)
            self.received += len(batch)
            self.duplicates += self._buffer.add(batch, sync).duplicates

    def _wait_until(self, enough: Callable[[], bool], what: str) -> None:
        seconds = self._config.distributed.timeout_seconds
        deadline = time.monotonic() + seconds
        while not enough():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} is not complete, and for {seconds:.0f} s none came; {self._silence()}")
            arrivals = self._exchange.wait_for_arrivals(_ROUND_SECONDS)
            if any(len(batch) for arrival in arrivals for batch in arrival.batches):
                deadline = time.monotonic() + seconds
            self._take(arrivals)

    def _silence(self) -> str:
        if self.last is None:
            return "no searcher was ever heard of"
        idle = self.last.headers["idle_seconds"]
        return "seconds since a generation batch: " + ", ".join(f"searcher {i}: {s:.0f}" for i, s in enumerate(idle))


class SynchronousIntake(Intake):
    """Synchronous: after each sync the trainer waits until every trajectory sampled with the new weights is there, and
    takes them in by searcher, so that the buffer's content does not depend on who was faster."""

    def __init__(self, config: RunConfig, exchange: TrainerExchange, buffer: ReplayBuffer, n_searchers: int) -> None:
        super().__init__(config, exchange, buffer)
        samples = config.rollout.samples_per_query
        queries = sum(config.synchronous_queries(i, n_searchers) for i in range(n_searchers))
        self._expected = queries * samples
        self._held: list[list[TrajectoryBatch]] = [[] for _ in range(n_searchers)]

    def prepare(self, step: int) -> float:
        """Waits, at the first step after a sync, for all that the searchers sample with its weights."""
        if step % self._config.trainer.sync_every:
            return 0.0
        started = time.monotonic()
        self._wait_until(
            lambda: self._held_count() >= self._expected, f"the data sampled with the weights of step {step}"
        )
        batches = [batch for held in self._held for batch in held]
        self._held = [[] for _ in self._held]
        assert all(np.all(batch.rows["policy_version"] == step) for batch in batches), "stale data in synchronous mode"
        self._add(TrajectoryBatch.concatenate(batches), step)
        return time.monotonic() - started

    def _take(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            self.last = arrival
            for held, batch in zip(self._held, arrival.batches, strict=True):
                held.append(batch)

    def _held_count(self) -> int:
        return sum(len(batch) for held in self._held for batch in held)
