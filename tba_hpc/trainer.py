"""The trainer: poll → sample → loss → backward → step → publish.

Trainer 0 owns the buffer and the exchange; the others get their share of each batch from it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from tba_hpc.checkpointer import Checkpointer
from tba_hpc.config import RunConfig
from tba_hpc.departure import Departure
from tba_hpc.distributed.trainer_exchange import TrainerExchange
from tba_hpc.distributed.trainer_group import TrainerGroup
from tba_hpc.intake import Intake
from tba_hpc.monitor import Monitor, StepReport
from tba_hpc.optim.engine import OptimEngine
from tba_hpc.optim.micro_batches import shard
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.trajectory import SampledBatch

logger = logging.getLogger(__name__)
_WATCH_SECONDS = 0.5


class Trainer:
    """Owns the main thread of trainer 0."""

    def __init__(
        self,
        config: RunConfig,
        engine: OptimEngine,
        group: TrainerGroup,
        buffer: ReplayBuffer,
        intake: Intake,
        exchange: TrainerExchange,
        monitor: Monitor,
        checkpointer: Checkpointer,
        departure: Departure,
        steps_done: int = 0,
    ) -> None:
        """`steps_done`: optimizer steps of earlier attempts of the run."""
        self._config = config
        self._engine = engine
        self._group = group
        self._buffer = buffer
        self._intake = intake
        self._exchange = exchange
        self._monitor = monitor
        self._checkpointer = checkpointer
        self._departure = departure
        self._first = self._synced_at = steps_done
        self.steps_done = steps_done
        """Optimizer steps of the run so far."""
        self.reason_to_leave: str | None = None
        """Why the run has to go on in another job, if it has to."""

    def run(self) -> None:
        """Runs the optimizer steps there are to do, unless the run has to leave before, and saves. Waits only where the
        intake says that there is too little data, and for a sync that is later than `trainer.max_sync_delay` allows."""
        while self.steps_done < self._config.trainer.steps and not self._has_to_leave():
            waiting = self._intake.prepare(self.steps_done, self._while_waiting)
            if waiting is None:
                break
            self._step(self.steps_done, waiting)
            if self._may_save() and self.steps_done < self._config.trainer.steps:
                self._checkpointer.step_done(self.steps_done)
        self._group.send_stop()
        self._group.close()
        self._exchange.stop()
        self._intake.finish()
        if self.steps_done > self._first or self.reason_to_leave:  # else it is as it was loaded
            self._checkpointer.save_last(self.steps_done)

    def _step(self, step: int, waiting_seconds: float) -> None:
        """Step `step` (0, 1, …), after such a wait for its data."""
        started = time.monotonic()
        batch = self._sample(step)
        metrics = self._learn(step, batch)
        self.steps_done = step + 1
        busy = time.monotonic() - started
        started = time.monotonic()
        if self._sync_is_due():
            self._exchange.publish(self.steps_done, self._engine.named_parameters())
            self._synced_at = self.steps_done
        waiting = waiting_seconds + time.monotonic() - started
        sync, checkpoint = self._exchange.sync_seconds, self._checkpointer.metrics
        self._monitor.step(StepReport(step, batch, metrics, busy, waiting, sync, checkpoint))

    def _may_save(self) -> bool:
        """In synchronous mode a run is saved between two syncs: what the searchers then work on follows from what is
        saved."""
        return not self._config.synchronous or self.steps_done % self._config.trainer.sync_every == 0

    def _has_to_leave(self) -> bool:
        """Whether the run is to save and leave now. Once it is, it stays so."""
        if self.reason_to_leave is None and self._may_save():
            self.reason_to_leave = self._departure.reason(self._checkpointer.save_seconds)
            if self.reason_to_leave:
                logger.info("leaving after step %d: %s", self.steps_done, self.reason_to_leave)
        return self.reason_to_leave is not None

    def _while_waiting(self) -> bool:
        """For the other trainers a sign of life; for this one the question whether to give up."""
        self._group.send_idle()
        return self._has_to_leave()

    def _sample(self, step: int) -> SampledBatch:
        trainer = self._config.trainer
        return self._buffer.sample(
            trainer.queries_per_batch, trainer.samples_per_query, step, recent_only=self._config.synchronous
        )

    def _learn(self, step: int, batch: SampledBatch) -> dict[str, float]:
        rows = batch.trajectories.rows
        lengths = rows["prompt_length"] + rows["response_length"]
        shares = [batch.select(indices) for indices in shard(lengths, batch.group_ids, self._group.size)]
        self._group.send(step, shares)
        return learn(self._config, self._engine, step, len(batch), shares[0])

    def _sync_is_due(self) -> bool:
        """Whether to publish now; waits for the publish before if the sync would otherwise be too late."""
        trainer = self._config.trainer
        late = self.steps_done - self._synced_at - trainer.sync_every
        if late < 0 or self.steps_done == trainer.steps:
            return False
        allowed = trainer.sync_every if trainer.max_sync_delay is None else trainer.max_sync_delay
        if self._config.synchronous or late >= allowed:
            self._exchange.wait_until_published()
        return self._exchange.ready_to_publish


def follow(config: RunConfig, engine: OptimEngine, group: TrainerGroup, interrupted: Callable[[], bool]) -> None:
    """The loop of the trainers other than trainer 0, whose batches they wait for; its stop message ends it. They let it
    know when their rank is `interrupted`: has been asked to save and leave."""
    watch = threading.Thread(target=_tell_when, args=(interrupted, group), name="watch", daemon=True)
    watch.start()
    while (message := group.receive()) is not None:
        step, total, share = message
        learn(config, engine, step, total, share)
    group.close()


def _tell_when(interrupted: Callable[[], bool], group: TrainerGroup) -> None:
    """On a thread of its own, as the main thread waits inside a library most of the time."""
    while not interrupted():
        time.sleep(_WATCH_SECONDS)
    group.tell_interrupted()


def learn(config: RunConfig, engine: OptimEngine, step: int, total: int, share: SampledBatch) -> dict[str, float]:
    """One optimizer step on this trainer's share of a batch of `total` trajectories, with β and learning rate of that
    step. Collective over the trainers."""
    beta = config.objective.beta(step)
    learning_rate = config.trainer.learning_rate(step)
    metrics = engine.step(share, total, beta, learning_rate)
    return {**metrics, "beta": beta, "learning_rate": learning_rate}
