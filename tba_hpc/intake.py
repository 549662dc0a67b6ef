"""How what the searchers send gets into the replay buffer, and when there is enough of it to learn from."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tba_hpc.config import RunConfig
from tba_hpc.distributed.trainer_exchange import Arrival, TrainerExchange
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.trajectory import TrajectoryBatch

_ROUND_SECONDS = 1.0  # longest wait for one round before its caller looks at its own bound


def _wait_on() -> bool:
    """Whether to give up waiting: no."""
    return False


@dataclass(slots=True)
class Arrived:
    """What has come from the searchers so far, over all attempts of the run."""

    prompts: NDArray[np.int64]
    """`[n]` prompts whose trajectories have arrived, by searcher, since the work was last divided among them."""
    trajectories: int
    """Duplicates included."""
    duplicates: int
    """Of these, exact duplicates of one held already."""


class Intake:
    """Asynchronous: whatever arrives goes into the buffer at once, and the trainer waits only for the first
    `buffer.start_size` trajectories and where `trainer.max_reuse` bounds how far it may run ahead of the searchers."""

    def __init__(
        self,
        config: RunConfig,
        exchange: TrainerExchange,
        buffer: ReplayBuffer,
        arrived: Arrived,
        reference_version: int = 0,
    ) -> None:
        """`arrived`: in earlier attempts of the run; `reference_version`: of the reference policy at its beginning."""
        self._config = config
        self._exchange = exchange
        self._buffer = buffer
        self._sync = -1
        self._reference_version = reference_version
        self._drops = config.reference.stale == "drop"
        self._usable = len(buffer) if self._drops else arrived.trajectories  # of the reference, if others are left out
        self.arrived = arrived
        self.last: Arrival | None = None
        """The latest round's arrival, whose headers tell how the searchers are doing."""
        self.latest_sync: list[TrajectoryBatch] = []
        """What the latest sync and the rounds after it have brought: how the policy does now, duplicates included."""

    def prepare(self, step: int, give_up: Callable[[], bool] = _wait_on) -> float | None:
        """Takes in what has arrived and waits until step `step` (0, 1, …) has data to learn from. Returns the seconds
        waited. Raises `TimeoutError` telling how long each searcher has been silent if nothing comes for too long.

        As long as something comes there is no bound on the whole wait, so every second or so it asks whether to
        `give_up`; then the result is None."""
        started = time.monotonic()
        self._take(self._exchange.arrivals())
        enough = self._wait_until(lambda: self._has_enough(step), f"the data of step {step}", give_up)
        return time.monotonic() - started if enough else None

    def reset_reference(self, version: int) -> None:
        """The reference policy is now that of optimizer step `version`. If the configuration says so, what an earlier
        one has scored is dropped, and left out where it arrives later."""
        self._reference_version = version
        if self._drops:
            self._buffer.clear()
            self._usable = 0

    def wait_until_in_use(self, version: int, give_up: Callable[[], bool] = _wait_on) -> bool:
        """Waits until every searcher works with weights of this version or newer ones: until then it could miss them,
        if still newer ones were published. Returns whether they all do; if not, it was given up."""

        def in_use() -> bool:
            return self.last is not None and bool(self.last.headers["policy_version"].min() >= version)

        return self._wait_until(in_use, f"the work of all searchers with the weights of step {version}", give_up)

    def finish(self) -> None:
        """Takes in what the last round has brought."""
        self._take(self._exchange.arrivals())

    def _has_enough(self, step: int) -> bool:
        reuse = self._config.trainer.max_reuse
        used = (step + 1) * self._config.trainer.batch_size
        enough_new = reuse is None or used / reuse <= self.arrived.trajectories
        return self._usable >= self._config.buffer.start_size and enough_new

    def _take(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            self.last = arrival
            batch = TrajectoryBatch.concatenate(arrival.batches)
            if len(batch):
                self._count(arrival.batches, batch, arrival.sync)
                self._add(batch, arrival.sync)

    def _count(self, by_searcher: Sequence[TrajectoryBatch], batch: TrajectoryBatch, sync: int) -> None:
        """Takes note of what has arrived: `batch`, all of them together."""
        self.arrived.prompts += [len(part) // self._config.rollout.samples_per_query for part in by_searcher]
        if sync != self._sync:
            self._sync, self.latest_sync = sync, []
        self.latest_sync.append(batch)
        self.arrived.trajectories += len(batch)

    def _add(self, batch: TrajectoryBatch, arrival: int) -> None:
        if self._drops:
            batch = batch.select(np.flatnonzero(batch.rows["reference_version"] == self._reference_version))
        self._usable += len(batch)
        self.arrived.duplicates += self._buffer.add(batch, arrival).duplicates

    def _wait_until(self, enough: Callable[[], bool], what: str, give_up: Callable[[], bool]) -> bool:
        """Returns whether there is enough; if not, it was given up."""
        seconds = self._config.longest_silence_seconds
        deadline = time.monotonic() + seconds
        while not enough():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} is not complete, and for {seconds:.0f} s none came; {self._silence()}")
            arrivals = self._exchange.wait_for_arrivals(_ROUND_SECONDS)
            if any(len(batch) for arrival in arrivals for batch in arrival.batches):
                deadline = time.monotonic() + seconds
            self._take(arrivals)
            if not enough() and give_up():
                return False
        return True

    def _silence(self) -> str:
        if self.last is None:
            return "no searcher was ever heard of"
        idle = self.last.headers["idle_seconds"]
        return "seconds since a generation batch: " + ", ".join(f"searcher {i}: {s:.0f}" for i, s in enumerate(idle))


class LockstepIntake(Intake):
    """Lockstep: the k steps that follow a sync learn from the k·B queries that the searchers have answered with the
    weights of one certain sync: of the latest in synchronous mode, with a fixed lag of the one so many steps before.
    The trainer waits until all of it is there, and takes it in by searcher, so that the buffer's content does not
    depend on who was faster. Each step learns from B queries that no other step does."""

    def __init__(
        self,
        config: RunConfig,
        exchange: TrainerExchange,
        buffer: ReplayBuffer,
        arrived: Arrived,
        reference_version: int = 0,
        first_step: int = 0,
    ) -> None:
        """`first_step`: optimizer steps of earlier attempts."""
        super().__init__(config, exchange, buffer, arrived, reference_version)
        n, samples = len(arrived.prompts), config.rollout.samples_per_query
        self._shares = [config.lockstep_queries(i, n) * samples for i in range(n)]
        self._per_step = config.trainer.queries_per_batch * samples
        self._first_step = first_step
        self._held: list[list[TrajectoryBatch]] = [[] for _ in arrived.prompts]
        self._fresh = TrajectoryBatch.empty()

    def prepare(self, step: int, give_up: Callable[[], bool] = _wait_on) -> float | None:
        """Waits, at the first step after a sync, for all that the steps up to the next one learn from. Makes this
        step's share of it the buffer's latest arrival."""
        steps_since_sync = step % self._config.trainer.sync_every
        waited = 0.0 if steps_since_sync else self._wait_for_sync(step, give_up)
        if waited is not None:
            first = steps_since_sync * self._per_step
            self._add(self._fresh.select(np.arange(first, first + self._per_step)), step)
        return waited

    def finish(self) -> None:
        """Looks at the last headers only: what the searchers are ahead is of no use to a run that goes on later, as it
        will be sampled again."""
        self._take(self._exchange.arrivals())

    def _wait_for_sync(self, step: int, give_up: Callable[[], bool]) -> float | None:
        """Waits for what the next k steps learn from, and puts it in the order of the searchers. Returns the seconds
        waited; None if it was given up."""
        started = time.monotonic()
        version = max(step - self._config.trainer.lag, self._first_step)
        what = f"the data sampled with the weights of step {version}"
        if not self._wait_until(self._is_complete, what, give_up):
            return None
        waited = time.monotonic() - started
        whole = [
            (TrajectoryBatch.concatenate(held), share) for held, share in zip(self._held, self._shares, strict=True)
        ]
        by_searcher = [held.select(np.arange(share)) for held, share in whole]
        self._held = [[held.select(np.arange(share, len(held)))] for held, share in whole]
        self._fresh = TrajectoryBatch.concatenate(by_searcher)
        assert np.all(self._fresh.rows["policy_version"] == version), "searchers answer each query in its turn"
        self._count(by_searcher, self._fresh, step)
        return waited

    def _is_complete(self) -> bool:
        return all(sum(map(len, held)) >= share for held, share in zip(self._held, self._shares, strict=True))

    def _take(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            self.last = arrival
            for held, batch in zip(self._held, arrival.batches, strict=True):
                held.append(batch)
