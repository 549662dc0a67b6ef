"""The configuration of a run: one frozen tree of settings, checked as a whole before anything expensive happens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import ByteSize, Field, NonNegativeFloat, PositiveFloat, model_validator

from tba_hpc.schedules import BetaSchedule, LearningRateSchedule, Linear
from tba_hpc.settings import ConfigError, Integer, PositiveInt, S, Settings, apply_overrides, read_yaml, validate

Share = Annotated[float, Field(ge=0, le=1)]
PositiveBytes = Annotated[ByteSize, Field(gt=0)]
GradNorm = Annotated[float, Field(gt=0, allow_inf_nan=True)]
"""Longest gradient; `.inf` for no clipping."""
AdamBeta = Annotated[float, Field(ge=0, lt=1)]


class ModelConfig(Settings):
    path: str
    """Policy to start from: a folder in Hugging Face format, or a hub name."""
    reference: str | None = None
    """Reference policy π_ref; the start of the policy when not given."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    logprob_chunk_tokens: PositiveInt = 1024
    """Logits exist for this many tokens at a time."""

    @property
    def reference_path(self) -> str:
        """Where π_ref is."""
        return self.reference or self.path

    @property
    def paths(self) -> set[str]:
        """Of both policies."""
        return {self.path, self.reference_path}

    @model_validator(mode="after")
    def _attention_fits_dtype(self) -> ModelConfig:
        if self.attention == "flash_attention_2" and self.dtype == "float32":
            raise ValueError("attention = flash_attention_2 does not work in float32: set dtype to bfloat16")
        return self


class TaskConfig(Settings):
    name: str
    """One of the package's, that of an entry point in the group `tba_hpc.tasks`, or a class in the file `path`."""
    path: Path | None = None
    """A Python file with the task."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Settings of the task itself; each task checks its own."""


class ExplorationConfig(Settings):
    """Wider sampling on a share of the queries. TB needs no correction for it: any sampler of full support will do,
    so top-p below 1 trades coverage for quality."""

    fraction: Share
    """Share of generation batches sampled with random settings."""
    temperature: tuple[PositiveFloat, PositiveFloat]
    """Drawn uniformly between these."""
    top_p: tuple[float, float] = (1.0, 1.0)
    """Drawn uniformly between these."""

    @model_validator(mode="after")
    def _ordered(self) -> ExplorationConfig:
        for name in ("temperature", "top_p"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} = [{low}, {high}] is not in ascending order")
        if not 0 < self.top_p[0] <= self.top_p[1] <= 1:
            raise ValueError(f"top_p = {list(self.top_p)} is not within (0, 1]")
        return self


class RolloutConfig(Settings):
    engine: Literal["hf"] = "hf"
    queries_per_batch: PositiveInt
    """Queries a searcher works on at a time."""
    samples_per_query: PositiveInt
    """S: responses sampled for each query."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature, and the one that defines the policy: log-probabilities divide logits by it."""
    top_p: float = Field(1.0, gt=0, le=1)
    max_prompt_tokens: PositiveInt
    """A longer prompt is refused at start-up."""
    max_response_tokens: PositiveInt
    """A response that has not ended by then is truncated."""
    exploration: ExplorationConfig | None = None


class ReferenceConfig(Settings):
    """Whether the reference policy moves, as in TBA′: with a constant β, the policy may then leave its start behind."""

    reset_every: PositiveInt | None = None
    """ρ: after every so many optimizer steps the current policy becomes the reference; never when not given. If it
    does, each trainer holds a copy of it, too."""
    stale: Literal["recompute", "drop"] = "recompute"
    """What happens to trajectories that an earlier reference has scored: the trainers score them anew when they are
    drawn, or they are left out."""

    def resets_after(self, steps: int) -> bool:
        """Whether the policy after so many optimizer steps becomes the reference."""
        return self.reset_every is not None and steps % self.reset_every == 0


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
    """Optimizer steps between two evaluations during training, by the searchers, beside it; null for none. In lockstep
    the trainer may have to wait for what they sample after it."""
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


Problem = tuple[bool, str]
"""Whether two settings do not go together, and what to say then."""


def learning_rate_problem(key: str, schedule: LearningRateSchedule, steps_key: str, steps: int) -> Problem:
    """A schedule that comes down to 0 before its end."""
    message = f"{key} is down to 0 after {schedule.span} steps: too few for {steps_key} = {steps}"
    return schedule(steps - 1) == 0, message


def checked(settings: S, problems: list[Problem]) -> S:
    """The settings. Raises `ValueError` with all that is wrong with them."""
    found = [message for wrong, message in problems if wrong]
    if found:
        raise ValueError("\n  ".join(found))
    return settings


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


def to_yaml(config: Settings) -> str:
    """The resolved configuration, every default written out, as YAML that loads again."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
