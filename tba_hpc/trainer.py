"""The trainer: poll → sample → loss → backward → step → publish.

Trainer 0 owns the buffer and the exchange; the others get their share of each batch from it.
"""

from __future__ import annotations

import time

from tba_hpc.config import RunConfig
from tba_hpc.distributed.trainer_exchange import TrainerExchange
from tba_hpc.distributed.trainer_group import TrainerGroup
from tba_hpc.intake import Intake
from tba_hpc.monitor import Monitor, StepReport
from tba_hpc.optim.engine import OptimEngine
from tba_hpc.optim.micro_batches import shard
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.trajectory import SampledBatch


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
    ) -> None:
        self._config = config
        self._engine = engine
        self._group = group
        self._buffer = buffer
        self._intake = intake
        self._exchange = exchange
        self._monitor = monitor

    def begin(self) -> None:
        """Sends the first weights, with which searchers start."""
        self._exchange.start()
        self._exchange.publish(0, self._engine.named_parameters())

    def run(self) -> None:
        """Runs all optimizer steps. Waits only where the intake says that there is too little data, and for a sync that
        is later than `trainer.max_sync_delay` allows."""
        trainer = self._config.trainer
        synced_at = 0
        for step in range(trainer.steps):
            waiting = self._intake.prepare(step, self._group.send_idle)
            started = time.monotonic()
            batch = self._sample(step)
            metrics = self._learn(step, batch)
            busy = time.monotonic() - started
            started = time.monotonic()
            if self._sync_is_due(step + 1, synced_at):
                self._exchange.publish(step + 1, self._engine.named_parameters())
                synced_at = step + 1
            waiting += time.monotonic() - started
            self._monitor.step(StepReport(step, batch, metrics, busy, waiting, self._exchange.sync_seconds))
        self._group.send_stop()
        self._group.close()
        self._exchange.stop()

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

    def _sync_is_due(self, steps_done: int, synced_at: int) -> bool:
        """Whether to publish now; waits for the publish before if the sync would otherwise be too late."""
        trainer = self._config.trainer
        late = steps_done - synced_at - trainer.sync_every
        if late < 0 or steps_done == trainer.steps:
            return False
        allowed = trainer.sync_every if trainer.max_sync_delay is None else trainer.max_sync_delay
        if self._config.synchronous or late >= allowed:
            self._exchange.wait_until_published()
        return self._exchange.ready_to_publish


def follow(config: RunConfig, engine: OptimEngine, group: TrainerGroup) -> None:
    """The loop of the trainers other than trainer 0, whose batches they wait for; its stop message ends it."""
    while (message := group.receive()) is not None:
        step, total, share = message
        learn(config, engine, step, total, share)
    group.close()


def learn(config: RunConfig, engine: OptimEngine, step: int, total: int, share: SampledBatch) -> dict[str, float]:
    """One optimizer step on this trainer's share of a batch of `total` trajectories, with β and learning rate of that
    step. Collective over the trainers."""
    beta = config.objective.beta(step)
    learning_rate = config.trainer.learning_rate(step)
    metrics = engine.step(share, total, beta, learning_rate)
    return {**metrics, "beta": beta, "learning_rate": learning_rate}
