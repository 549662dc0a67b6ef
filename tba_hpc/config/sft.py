"""The configuration of supervised fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, NonNegativeFloat, model_validator

from tba_hpc.config.checks import GradNorm, checked, learning_rate_problem
from tba_hpc.config.operation import CheckpointConfig, EvaluationConfig, LaunchConfig
from tba_hpc.config.policy import ModelConfig, TaskConfig
from tba_hpc.schedules import LearningRateSchedule
from tba_hpc.settings import Integer, PositiveInt, Settings, apply_overrides, read_yaml, validate


class SftTrainingConfig(Settings):
    max_steps: PositiveInt
    batch_size: PositiveInt
    learning_rate: LearningRateSchedule
    weight_decay: NonNegativeFloat = 0.0
    max_grad_norm: GradNorm = 1.0
    micro_batch_tokens: PositiveInt = 16384
    """Most tokens, padding included, in one forward and backward pass; the gradient is that of the whole batch."""
    skip_too_long: bool = False
    """Leave out demonstrations that are longer than `max_response_tokens` or than the model's positions allow, and say
    how many; otherwise one that is too long is an error."""
    evaluate_every: PositiveInt
    """Optimizer steps between two greedy evaluations."""
    stop_at_accuracy: float = Field(1.0, gt=0, le=1)
    """Stop at the first evaluation that reaches this."""


class SftConfig(Settings):
    """A supervised warm-up: the policy that reinforcement learning starts from."""

    run_dir: Path
    seed: Integer = Field(0, ge=0)
    model: ModelConfig | None = None
    """Model to go on from; or `init` to start from random weights."""
    init: dict[str, Any] | None = None
    """Settings of `transformers.LlamaConfig` for a fresh model over the task's own vocabulary."""
    task: TaskConfig
    training: SftTrainingConfig
    max_response_tokens: PositiveInt
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    launch: LaunchConfig = LaunchConfig()

    @model_validator(mode="after")
    def _consistent(self) -> SftConfig:
        model, training = self.model, self.training
        problems = [
            (
                (model is None) == (self.init is None),
                "give either model (a checkpoint to go on from) or init (a fresh model)",
            ),
            (
                model is not None and model.reference is not None,
                "model.reference is set, but fine-tuning has no use for a reference policy: leave it out",
            ),
            learning_rate_problem(
                "training.learning_rate", training.learning_rate, "training.max_steps", training.max_steps
            ),
        ]
        return checked(self, problems)


def load_sft_config(path: Path, overrides: list[str]) -> SftConfig:
    """The configuration in a YAML file, changed by `a.b=value` overrides. Raises `ConfigError`."""
    return validate(SftConfig, apply_overrides(read_yaml(path), overrides), str(path))
