"""Settings of the replay buffer, the objective and the optimizer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ByteSize, Field, NonNegativeFloat, PositiveFloat, model_validator

from tba_hpc.config.checks import GradNorm, PositiveBytes, Share
from tba_hpc.schedules import BetaSchedule, LearningRateSchedule, Linear
from tba_hpc.settings import Integer, PositiveInt, Settings

AdamBeta = Annotated[float, Field(ge=0, lt=1)]


class BufferConfig(Settings):
    most_on_policy: Share
    """m: probability that a query of a batch is drawn from what arrived at the latest sync."""
    reward_softmax: Share = 0.0
    """Share of the other queries whose responses are drawn by softmax of reward; the rest are drawn uniformly."""
    reward_temperature: PositiveFloat = 1.0
    """Rewards are divided by this before the softmax."""
    deduplicate: bool = True
    """Keep an exact duplicate (same query, same tokens) once, the newest. Turn it off where responses are a few tokens:
    there, how often one comes up is what tells the policy's distribution."""
    max_per_query: PositiveInt
    """Most trajectories kept of one query; beyond it the query's oldest go."""
    capacity: PositiveInt
    """Most trajectories kept in all; beyond it the oldest go."""
    start_size: PositiveInt
    """Trajectories to wait for before the first optimizer step."""
    memory_limit: ByteSize = ByteSize(4 * 2**30)
    """Bytes of trajectories held in RAM; older ones are spilled to disk."""
    segment_bytes: PositiveBytes = ByteSize(32 * 2**20)
    """Size of a spilled HDF5 segment."""


class ObjectiveConfig(Settings):
    name: Literal["tb_vargrad"] = "tb_vargrad"
    beta: BetaSchedule
    """β of the target posterior π_ref · exp(r/β)."""
    importance_ratio: tuple[NonNegativeFloat, PositiveFloat] | None = None
    """Weigh the gradient of each token with π_θ / π_behavior, clamped to between these; no weights when not given."""
    log_ratio_limit: PositiveFloat | None = None
    """Clamp each token's log π_θ − log π_ref to ± this; unlimited when not given."""

    @model_validator(mode="after")
    def _beta_stays_positive(self) -> ObjectiveConfig:
        if isinstance(self.beta, Linear) and min(self.beta.start, self.beta.end) <= 0:
            raise ValueError(f"beta runs from {self.beta.start} to {self.beta.end}, but r/β needs β > 0 throughout")
        return self

    @model_validator(mode="after")
    def _ratios_ordered(self) -> ObjectiveConfig:
        if self.importance_ratio and self.importance_ratio[0] > self.importance_ratio[1]:
            raise ValueError(f"importance_ratio = {list(self.importance_ratio)} is not in ascending order")
        return self


class TrainerConfig(Settings):
    engine: Literal["torch"] = "torch"
    steps: PositiveInt
    batch_size: PositiveInt
    """Trajectories in an optimizer step, over all trainers."""
    samples_per_query: Integer = Field(ge=2)
    """K: trajectories of one query in a batch. log Ẑ is a mean over them, so one alone teaches nothing."""
    sync_every: PositiveInt
    """k: optimizer steps between two syncs with the searchers."""
    max_sync_delay: Integer | None = Field(None, ge=0)
    """Optimizer steps that a sync may be late because the one before is still under way, before the trainer waits;
    k when not given."""
    lag: Integer = Field(0, ge=0)
    """L, with schedule = fixed_lag: optimizer steps between the weights that sample a batch and the step that learns
    from it; a multiple of k."""
    max_reuse: PositiveFloat | None = None
    """Most times that a trajectory may be learned from, on average over all that have arrived; beyond it the trainer
    waits for new ones. Unbounded when not given."""
    learning_rate: LearningRateSchedule
    weight_decay: NonNegativeFloat = 0.0
    adam_betas: tuple[AdamBeta, AdamBeta] = (0.9, 0.999)
    max_grad_norm: GradNorm = 1.0
    micro_batch_tokens: PositiveInt = 16384
    """Most tokens, padding included, in one forward and backward pass."""

    @property
    def queries_per_batch(self) -> int:
        """B"""
        return self.batch_size // self.samples_per_query
