"""What can be said of a run before any of its models is loaded or any file of an earlier run is deleted."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedTokenizerBase

from tba_hpc.config import RolloutConfig, RunConfig
from tba_hpc.evaluator import number_of_problems
from tba_hpc.models import load_model_config, load_tokenizer, room_for_prompt
from tba_hpc.prompts import PromptOrder
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.text import encode_prompts
from tba_hpc.settings import ConfigError
from tba_hpc.tasks.base import Split, Task

_PROMPTS_AT_A_TIME = 4096


def check_inputs(config: RunConfig, task: Task[Any], n_searchers: int) -> None:
    """Raises `ConfigError` for a model path without a model or a tokenizer, a model whose positions a trajectory could
    outgrow, texts to stop at that its tokenizer cannot find, too few training prompts for the searchers, and a prompt,
    of training or of the evaluation, that is longer than `rollout.max_prompt_tokens`. Reads no weights; tokenizes every
    prompt once."""
    tokenizer = load_tokenizer(config.model.path)
    ResponseEnd(tokenizer, [], config.rollout.stop)
    for path in config.model.paths:
        _check_positions(path, config.rollout)
    size = task.size("train")
    PromptOrder.of(size, config.seed).share(0, n_searchers)
    limit, evaluation = config.rollout.max_prompt_tokens, config.evaluation
    check_prompts(task, tokenizer, "train", size, limit)
    if evaluation.problems:
        n_problems = number_of_problems(task, evaluation.split, evaluation.problems)
        check_prompts(task, tokenizer, evaluation.split, n_problems, limit)


def _check_positions(path: str, rollout: RolloutConfig) -> None:
    room = room_for_prompt(load_model_config(path), rollout.max_response_tokens)
    if rollout.max_prompt_tokens > room:
        raise ConfigError(
            f"rollout.max_prompt_tokens = {rollout.max_prompt_tokens} is more than the {room} positions that the model "
            f"at {path!r} has beside those of rollout.max_response_tokens = {rollout.max_response_tokens}"
        )


def check_prompts(task: Task[Any], tokenizer: PreTrainedTokenizerBase, split: Split, n: int, limit: int) -> None:
    """Raises `ConfigError` if one of the first `n` prompts of a split has more than `limit` tokens, or none."""
    for start in range(0, n, _PROMPTS_AT_A_TIME):
        prompts = [task.prompt(split, i) for i in range(start, min(start + _PROMPTS_AT_A_TIME, n))]
        try:
            encode_prompts(tokenizer, prompts, limit)
        except ValueError as error:
            raise ConfigError(f"{split} split of task {type(task).__name__}: {error}") from error
