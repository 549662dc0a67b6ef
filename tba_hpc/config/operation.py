"""Settings of ranks, evaluations, checkpoints, the job and logs."""

from __future__ import annotations

from typing import Literal

from pydantic import ByteSize, Field, NonNegativeFloat, PositiveFloat

from tba_hpc.config.checks import PositiveBytes
from tba_hpc.settings import Integer, PositiveInt, Settings


class DistributedConfig(Settings):
    trainers: PositiveInt = 1
    searchers: PositiveInt | None = None
    """All ranks that do not train, when not given."""
    timeout_seconds: PositiveFloat = 600.0
    """Longest wait for another rank before the run ends with an error that names it."""
    idle_round_seconds: PositiveFloat = 0.1
    """Time between two exchanges while the trainer waits for data."""
    pending_bytes: ByteSize = ByteSize(256 * 2**20)
    """A searcher pauses before its next batch while more than this much of its work has not been collected."""
    chunk_bytes: PositiveBytes = ByteSize(2**30)
    """Largest share of one searcher in one MPI gather; a bigger one takes several."""
    bucket_bytes: PositiveBytes = ByteSize(64 * 2**20)
    """Size of the buffers in which weights travel."""


class EvaluationConfig(Settings):
    split: Literal["train", "test"] = "test"
    problems: Integer = Field(512, ge=0)
    """Held-out problems answered greedily before and after training; 0 to skip."""
    every_steps: PositiveInt | None = None
    """Optimizer steps between two evaluations during training, by the searchers, beside it; null for none. Each is of
    the first sync then or after that. In lockstep the trainer may have to wait for what they sample after it."""
    batch_size: PositiveInt = 256
    timeout_seconds: PositiveFloat = 3600.0
    """Longest that a rank may be busy with an evaluation while others wait for it."""


class CheckpointConfig(Settings):
    every_steps: PositiveInt | None = 100
    """Optimizer steps between two checkpoints; null for none but those written in any case, at the end and when the run
    is interrupted."""
    keep_last: PositiveInt = 2
    """Older checkpoints are removed, but not pinned ones."""
    pin_every: PositiveInt | None = None
    """Checkpoints of this step and its multiples are pinned: never removed. So is any in whose folder a file `pinned`
    lies."""
    timeout_seconds: PositiveFloat = 1800.0
    """Longest wait for a checkpoint to be written."""


class LaunchConfig(Settings):
    save_before_end: NonNegativeFloat = 60.0
    """Seconds before the end of the job at which all is to be saved: the run stops earlier by as much as the last save
    took, and leaves with the exit code that has it requeued."""
    walltime_seconds: PositiveFloat | None = None
    """Length of the job. Not needed under Slurm, which tells when it ends."""


class LoggingConfig(Settings):
    samples_every: PositiveInt = 20
    """Optimizer steps between two sets of sample texts."""
    samples: Integer = Field(4, ge=0)
    histograms_every: PositiveInt = 20
    """Optimizer steps between two staleness histograms."""
