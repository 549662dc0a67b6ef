"""Settings of the replay buffer and the optimizer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ByteSize, Field, NonNegativeFloat, PositiveFloat

from tba_hpc.config.checks import GradNorm, PositiveBytes, Share
from tba_hpc.schedules import LearningRateSchedule
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


class TrainerConfig(Settings):
    engine: Literal["torch"] = "torch"
    steps: PositiveInt
    batch_size: PositiveInt
    """Trajectories in an optimizer step, over all trainers."""
    samples_per_query: Integer = Field(ge=2)
    """K: trajectories of one query in a batch. They are judged by each other, so one alone teaches nothing."""
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
