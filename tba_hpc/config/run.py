"""The configuration of a run: one frozen tree of settings, checked as a whole before anything expensive happens."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from tba_hpc.config.checks import Problem, checked, learning_rate_problem
from tba_hpc.config.learning import BufferConfig, TrainerConfig
from tba_hpc.config.objectives import ObjectiveConfig
from tba_hpc.config.operation import (
    CheckpointConfig,
    DistributedConfig,
    EvaluationConfig,
    LaunchConfig,
    LoggingConfig,
)
from tba_hpc.config.policy import ModelConfig, ReferenceConfig, RolloutConfig, TaskConfig
from tba_hpc.settings import ConfigError, Integer, Settings, apply_overrides, read_yaml, validate


class RunConfig(Settings):
    """Everything a run depends on."""

    run_dir: Path
    seed: Integer = Field(0, ge=0)
    schedule: Literal["asynchronous", "synchronous", "fixed_lag"] = "asynchronous"
    """`synchronous`: after each sync the trainer waits for fresh data, and searchers for new weights. `fixed_lag`: the
    searchers are always `trainer.lag` optimizer steps ahead with the same exact share of the work, so that every batch
    is that stale, and the buffer serves for nothing else."""
    model: ModelConfig
    task: TaskConfig
    rollout: RolloutConfig
    buffer: BufferConfig
    reference: ReferenceConfig = ReferenceConfig()
    objective: ObjectiveConfig
    trainer: TrainerConfig
    distributed: DistributedConfig = DistributedConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    launch: LaunchConfig = LaunchConfig()
    logging: LoggingConfig = LoggingConfig()

    @model_validator(mode="after")
    def _consistent(self) -> RunConfig:
        trainer, buffer, rollout = self.trainer, self.buffer, self.rollout
        k = trainer.samples_per_query
        problems = [
            (
                trainer.batch_size % k != 0,
                f"trainer.batch_size = {trainer.batch_size} is not a multiple of trainer.samples_per_query = {k}",
            ),
            (
                trainer.queries_per_batch < self.distributed.trainers,
                f"trainer.batch_size = {trainer.batch_size} holds {trainer.queries_per_batch} queries, fewer than "
                f"distributed.trainers = {self.distributed.trainers}: a trainer would have nothing to do",
            ),
            (
                buffer.max_per_query < k,
                f"buffer.max_per_query = {buffer.max_per_query} is below trainer.samples_per_query = {k}: "
                "a batch could never hold that many of one query",
            ),
            (
                rollout.samples_per_query < k,
                f"rollout.samples_per_query = {rollout.samples_per_query} is below trainer.samples_per_query = {k}: "
                "recent trajectories would have to be drawn twice",
            ),
            (
                buffer.start_size > buffer.capacity,
                f"buffer.start_size = {buffer.start_size} is above buffer.capacity = {buffer.capacity}: "
                "training would never start",
            ),
            learning_rate_problem("trainer.learning_rate", trainer.learning_rate, "trainer.steps", trainer.steps),
            (
                self.evaluation.every_steps is not None and self.evaluation.problems == 0,
                f"evaluation.every_steps = {self.evaluation.every_steps}, but evaluation.problems = 0",
            ),
            *self._sync_problems(),
            *self._pin_problems(),
        ]
        return checked(self, problems)

    def _sync_problems(self) -> list[Problem]:
        """Of what happens at syncs only."""
        k, lag, reset = self.trainer.sync_every, self.trainer.lag, self.reference.reset_every
        drops = reset is not None and self.reference.stale == "drop"
        return [
            (
                (self.schedule == "fixed_lag") != (lag > 0),
                f"trainer.lag = {lag} with schedule = {self.schedule}: fixed_lag needs a lag, the others have none",
            ),
            (
                self.in_lockstep
                and self.buffer.capacity < self.trainer.queries_per_batch * self.rollout.samples_per_query,
                f"buffer.capacity = {self.buffer.capacity} is below the trajectories of a step with schedule = "
                f"{self.schedule}: {self.trainer.queries_per_batch} × rollout.samples_per_query",
            ),
            (lag % k != 0, f"trainer.lag = {lag} is not a multiple of trainer.sync_every = {k}"),
            (
                reset is not None and reset % k != 0,
                f"reference.reset_every = {reset} is not a multiple of trainer.sync_every = {k}: searchers take for "
                "the reference what a sync brings",
            ),
            (
                drops and lag > 0,
                "reference.stale = drop would leave schedule = fixed_lag without data after a reset: use recompute",
            ),
        ]

    def _pin_problems(self) -> list[Problem]:
        """Where no checkpoint would ever be of a step that is to be pinned."""
        pin, k = self.checkpoint.pin_every, self.trainer.sync_every
        if pin is None:
            return []
        every = self.checkpoint.every_steps
        return [
            (
                every is None or pin % every != 0,
                f"checkpoint.pin_every = {pin} is not a multiple of checkpoint.every_steps = {every}",
            ),
            (
                self.in_lockstep and pin % k != 0,
                f"checkpoint.pin_every = {pin} is not a multiple of trainer.sync_every = {k}, but with schedule = "
                f"{self.schedule} checkpoints are of the steps between two syncs",
            ),
        ]

    def check_world(self, ranks: int) -> None:
        """Raises `ConfigError` if a world of `ranks` processes cannot run this configuration."""
        trainers, searchers = self.distributed.trainers, self.distributed.searchers
        if ranks < 2:
            raise ConfigError(f"a run needs at least 2 ranks, a trainer and a searcher; this world has {ranks}")
        if ranks <= trainers:
            raise ConfigError(f"distributed.trainers = {trainers} leaves no searcher among {ranks} ranks")
        if searchers is not None and trainers + searchers != ranks:
            raise ConfigError(
                f"distributed.trainers = {trainers} and distributed.searchers = {searchers} need "
                f"{trainers + searchers} ranks; this world has {ranks}"
            )

    @property
    def longest_silence_seconds(self) -> float:
        """Longest time without a trajectory from any searcher, while the trainer waits for some. They may all be
        evaluating."""
        evaluation = self.evaluation.timeout_seconds if self.evaluation.every_steps else 0.0
        return self.distributed.timeout_seconds + evaluation

    @property
    def patience_seconds(self) -> float:
        """Longest wait for a sign of life of trainer 0's main thread.

        It may meanwhile evaluate, save, wait for a late sync or, in lockstep, for the other searchers. These
        have bounds of their own, and trainer 0, who can name the culprit, is to give up first."""
        saving = 2 * self.checkpoint.timeout_seconds
        return self.evaluation.timeout_seconds + saving + 6 * self.distributed.timeout_seconds

    @property
    def in_lockstep(self) -> bool:
        """Whether searchers answer an exact number of queries with the weights of each sync."""
        return self.schedule != "asynchronous"

    def lockstep_queries(self, searcher: int, n_searchers: int) -> int:
        """Queries a searcher answers after each sync in lockstep: its share of what the trainer learns from between two
        syncs, k batches of B."""
        needed = self.trainer.sync_every * self.trainer.queries_per_batch
        return needed // n_searchers + (searcher < needed % n_searchers)


def load_run_config(path: Path, overrides: list[str]) -> RunConfig:
    """The configuration in a YAML file, changed by `a.b=value` overrides. Raises `ConfigError`."""
    return validate(RunConfig, apply_overrides(read_yaml(path), overrides), str(path))
