"""The configuration files of training and of fine-tuning."""

from tba_hpc.config.learning import BufferConfig, ObjectiveConfig, TrainerConfig
from tba_hpc.config.operation import CheckpointConfig, DistributedConfig, EvaluationConfig, LaunchConfig, LoggingConfig
from tba_hpc.config.policy import ExplorationConfig, ModelConfig, ReferenceConfig, RolloutConfig, StopTexts, TaskConfig
from tba_hpc.config.run import RunConfig, load_run_config
from tba_hpc.config.sft import SftConfig, SftTrainingConfig, load_sft_config

__all__ = [
    "BufferConfig",
    "CheckpointConfig",
    "DistributedConfig",
    "EvaluationConfig",
    "ExplorationConfig",
    "LaunchConfig",
    "LoggingConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "ReferenceConfig",
    "RolloutConfig",
    "RunConfig",
    "SftConfig",
    "SftTrainingConfig",
    "StopTexts",
    "TaskConfig",
    "TrainerConfig",
    "load_run_config",
    "load_sft_config",
]
