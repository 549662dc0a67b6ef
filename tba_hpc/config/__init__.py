"""The configuration files of training and of fine-tuning."""

from tba_hpc.config.learning import BufferConfig, TrainerConfig
from tba_hpc.config.objectives import (
    ClipRange,
    DrGRPOConfig,
    GRPOConfig,
    KimiConfig,
    ObjectiveConfig,
    OnlineDPOConfig,
    ProximalRLOOConfig,
    ReinforceConfig,
    RLOOConfig,
    SFTObjectiveConfig,
    TBVarGradConfig,
)
from tba_hpc.config.operation import CheckpointConfig, DistributedConfig, EvaluationConfig, LaunchConfig, LoggingConfig
from tba_hpc.config.policy import ExplorationConfig, ModelConfig, ReferenceConfig, RolloutConfig, StopTexts, TaskConfig
from tba_hpc.config.run import RunConfig, load_run_config
from tba_hpc.config.sft import SftConfig, SftTrainingConfig, load_sft_config

__all__ = [
    "BufferConfig",
    "CheckpointConfig",
    "ClipRange",
    "DistributedConfig",
    "DrGRPOConfig",
    "EvaluationConfig",
    "ExplorationConfig",
    "GRPOConfig",
    "KimiConfig",
    "LaunchConfig",
    "LoggingConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "OnlineDPOConfig",
    "ProximalRLOOConfig",
    "RLOOConfig",
    "ReferenceConfig",
    "ReinforceConfig",
    "RolloutConfig",
    "RunConfig",
    "SFTObjectiveConfig",
    "SftConfig",
    "SftTrainingConfig",
    "StopTexts",
    "TBVarGradConfig",
    "TaskConfig",
    "TrainerConfig",
    "load_run_config",
    "load_sft_config",
]
