"""What fine-tuning learns from, known before any weight is read or any file of an earlier run is deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from tba_hpc.config import SftConfig
from tba_hpc.demonstrations import demonstrations
from tba_hpc.evaluator import number_of_problems
from tba_hpc.models import fresh_llama, load_model_config, load_policy, load_tokenizer, room_for_prompt
from tba_hpc.preflight import check_prompts
from tba_hpc.tasks import make_task
from tba_hpc.tasks.base import Task
from tba_hpc.trajectory import TrajectoryBatch


@dataclass(frozen=True, slots=True)
class SftInputs:
    config: SftConfig
    task: Task[Any]
    tokenizer: PreTrainedTokenizerBase
    max_prompt_tokens: int
    """What the model's positions leave for a prompt."""
    corpus: TrajectoryBatch
    """The demonstrations."""

    def load_model(self) -> PreTrainedModel:
        """As it is before the first step, on the GPU if there is one."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self.config.model is not None:
            return load_policy(self.config.model.path, self.config.model, device)
        model = _fresh_model(self.config, self.tokenizer)
        model.to(device)  # type: ignore[arg-type]
        return model


def read_inputs(config: SftConfig) -> SftInputs:
    """Raises `ConfigError` for a model path without a model or a tokenizer, a demonstration that is too long, problems
    of the evaluation that are not there, and a prompt of it that is too long; `ValueError` for a task without
    solutions."""
    task = make_task(config.task)
    if config.model is not None:
        tokenizer, model_config = load_tokenizer(config.model.path), load_model_config(config.model.path)
    else:
        tokenizer = task.new_tokenizer()
        model_config = _fresh_model_config(config, tokenizer)
    room = room_for_prompt(model_config, config.max_response_tokens)
    corpus = demonstrations(task, tokenizer, room, config.max_response_tokens, config.training.skip_too_long)
    evaluation = config.evaluation
    if evaluation.problems:
        n_problems = number_of_problems(task, evaluation.split, evaluation.problems)
        check_prompts(task, tokenizer, evaluation.split, n_problems, room)
    return SftInputs(config, task, tokenizer, room, corpus)


def _fresh_model_config(config: SftConfig, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    with torch.device("meta"):  # which gives weights no memory
        return _fresh_model(config, tokenizer).config


def _fresh_model(config: SftConfig, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    assert config.init is not None  # the configuration has one or the other
    return fresh_llama(config.init, tokenizer, config.seed)
