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
from tba_hpc.reference import ReferencePolicy
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
        reference: ReferencePolicy | None = None,
        steps_done: int = 0,
    ) -> None:
        """`reference`: this trainer's copy of π_ref, if it moves. `steps_done`: optimizer steps of earlier attempts of
        the run."""
        self._config = config
        self._engine = engine
        self._group = group
        self._buffer = buffer
        self._intake = intake
        self._exchange = exchange
        self._monitor = monitor
        self._checkpointer = checkpointer
        self._departure = departure
        self._reference = reference
        self._first = self._synced_at = self._evaluated_at = steps_done
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
        self._monitor.finish()
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
        if self._resets_reference():
            self._intake.reset_reference(self.steps_done)
        if self._sync_is_due():
            self._publish()
        waiting = waiting_seconds + time.monotonic() - started
        sync, checkpoint = self._exchange.sync_seconds, self._checkpointer.metrics
        self._monitor.step(StepReport(step, batch, metrics, busy, waiting, sync, checkpoint))

    def _publish(self) -> None:
        every = self._config.evaluation.every_steps
        evaluate = every is not None and self.steps_done // every > self._evaluated_at // every
        if evaluate:
            self._evaluated_at = self.steps_done
            self._monitor.evaluation_asked(self.steps_done)
        named = self._engine.named_parameters()
        self._exchange.publish(self.steps_done, named, self._resets_reference(), evaluate)
        self._synced_at = self.steps_done

    def _resets_reference(self) -> bool:
        return self._config.reference.resets_after(self.steps_done)

    def _may_save(self) -> bool:
        """In lockstep a run is saved between two syncs: what the searchers then work on follows from what is saved."""
        return not self._config.in_lockstep or self.steps_done % self._config.trainer.sync_every == 0

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
            trainer.queries_per_batch, trainer.samples_per_query, step, recent_only=self._config.in_lockstep
        )

    def _learn(self, step: int, batch: SampledBatch) -> dict[str, float]:
        rows = batch.trajectories.rows
        lengths = rows["prompt_length"] + rows["response_length"]
        shares = [batch.select(indices) for indices in shard(lengths, batch.group_ids, self._group.size)]
        self._group.send(step, shares)
        metrics = {}
        if self._reference:
            stale = rows["reference_version"] != self._reference.version
            metrics = {"version": self._reference.version, "rescored": float(stale.mean())}
        return {**metrics, **learn(self._config, self._engine, self._reference, step, len(batch), shares[0])}

    def _sync_is_due(self) -> bool:
        """Whether to publish now. Waits for the publish before if the sync would otherwise be too late, or is one that
        no searcher must miss."""
        trainer, lockstep = self._config.trainer, self._config.in_lockstep
        late = self.steps_done - self._synced_at - trainer.sync_every
        if self.steps_done == trainer.steps or (late < 0 and not self._resets_reference()):
            return False
        allowed = trainer.sync_every if trainer.max_sync_delay is None else trainer.max_sync_delay
        if lockstep or late >= allowed or self._resets_reference():
            self._exchange.wait_until_published()
        if lockstep and not self._intake.wait_until_in_use(self._synced_at, self._while_waiting):
            return False
        return self._exchange.ready_to_publish


def follow(
    config: RunConfig,
    engine: OptimEngine,
    group: TrainerGroup,
    reference: ReferencePolicy | None,
    interrupted: Callable[[], bool],
) -> None:
    """The loop of the trainers other than trainer 0, whose batches they wait for; its stop message ends it. They let it
    know when their rank is `interrupted`: has been asked to save and leave."""
    watch = threading.Thread(target=_tell_when, args=(interrupted, group), name="watch", daemon=True)
    watch.start()
    while (message := group.receive()) is not None:
        step, total, share = message
        learn(config, engine, reference, step, total, share)
    group.close()


def _tell_when(interrupted: Callable[[], bool], group: TrainerGroup) -> None:
    """On a thread of its own, as the main thread waits inside a library most of the time."""
    while not interrupted():
        time.sleep(_WATCH_SECONDS)
    group.tell_interrupted()


def learn(
    config: RunConfig,
    engine: OptimEngine,
    reference: ReferencePolicy | None,
    step: int,
    total: int,
    share: SampledBatch,
) -> dict[str, float]:
    """One optimizer step on this trainer's share of a batch of `total` trajectories, with β and learning rate of that
    step, and with what the reference policy of now says of each; then the reference policy moves if it is time.
    Collective over the trainers."""
    beta = config.objective.beta(step)
    learning_rate = config.trainer.learning_rate(step)
    if reference:
        share = reference.current(share)
    metrics = engine.step(share, total, beta, learning_rate)
    if reference and config.reference.resets_after(step + 1):
        reference.reset(engine.named_parameters(), step + 1)
    return {**metrics, "beta": beta, "learning_rate": learning_rate}
