"""How good a policy is: the share of problems that it answers right, greedily (pass@1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from tba_hpc.accuracy import Accuracy
from tba_hpc.config import EvaluationConfig, ModelConfig, TaskConfig
from tba_hpc.models import load_model_config, load_policy, load_tokenizer, room_for_prompt
from tba_hpc.rollout.engine import Rollout, RolloutEngine, SamplingParams
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.rollout.text import decode_responses, encode_prompts
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import make_task
from tba_hpc.tasks.base import Split, Task
from tba_hpc.trajectory import Prompt


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One problem and what the policy made of it; its fields are the columns of a JSONL file."""

    prompt: str
    response: str
    answer: str
    correct: bool


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    records: tuple[EvaluationRecord, ...]
    """One a problem, in the order of the split."""
    mean_response_length: float
    """Tokens, the end-of-sequence token included."""
    finished_fraction: float
    """Share of the responses that ended before they were cut at the token limit."""

    @property
    def accuracy(self) -> Accuracy:
        return Accuracy(sum(record.correct for record in self.records), len(self.records))


class EvaluationStoppedError(Exception):
    """The run was asked to leave before the last answer."""


def evaluate(
    engine: RolloutEngine,
    task: Task[Any],
    tokenizer: PreTrainedTokenizerBase,
    settings: EvaluationConfig,
    max_prompt_tokens: int,
    max_response_tokens: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> EvaluationResult:
    """Answers the first `settings.problems` of a split, or all of it if that is 0 or more than it has. Raises
    `EvaluationStoppedError` once `should_stop` is true; `ConfigError` for a split without problems; `ValueError` for a
    prompt that is too long."""
    n_problems = number_of_problems(task, settings.split, settings.problems)
    prompts = [task.prompt(settings.split, i) for i in range(n_problems)]
    params = SamplingParams(samples=1, max_tokens=max_response_tokens, temperature=0.0)
    tokens = encode_prompts(tokenizer, prompts, max_prompt_tokens)
    rollouts: list[Rollout] = []
    for start in range(0, len(prompts), settings.batch_size):
        groups = engine.generate(tokens[start : start + settings.batch_size], params, should_stop)
        if should_stop():
            raise EvaluationStoppedError
        rollouts += [only for (only,) in groups]
    return EvaluationResult(
        _records(task, prompts, decode_responses(tokenizer, rollouts)),
        mean_response_length=sum(len(rollout.tokens) for rollout in rollouts) / len(rollouts),
        finished_fraction=sum(rollout.finished for rollout in rollouts) / len(rollouts),
    )


def number_of_problems(task: Task[Any], split: Split, problems: int) -> int:
    """How many problems an evaluation on the first `problems` of a split answers; 0 stands for all there are. Raises
    `ConfigError` for a split without any."""
    size = task.size(split)
    if size == 0:
        raise ConfigError(f"the {split} split of task {type(task).__name__} has no problems to evaluate on")
    return min(problems or size, size)


def evaluate_checkpoint(
    path: str, task: TaskConfig, settings: EvaluationConfig, max_response_tokens: int
) -> EvaluationResult:
    """`evaluate` for the model at `path`, a folder or a hub name, in this process alone; the model's positions bound
    its prompts. Raises `ConfigError` for an unknown task, a path without a model, or `max_response_tokens` that leave
    no positions for a prompt; `ValueError` as `evaluate` does."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    the_task, tokenizer = make_task(task), load_tokenizer(path)
    room = room_for_prompt(load_model_config(path), max_response_tokens)
    model = load_policy(path, ModelConfig(path=path), device)
    return evaluate(
        HFEngine(model, tokenizer.eos_token_id),
        the_task,
        tokenizer,
        settings,
        room,
        max_response_tokens,
    )


def _records(task: Task[Any], prompts: Sequence[Prompt], responses: Sequence[str]) -> tuple[EvaluationRecord, ...]:
    scores = task.score(prompts, responses)
    return tuple(
        EvaluationRecord(prompt.text, response, prompt.answer, score.correct)
        for prompt, response, score in zip(prompts, responses, scores, strict=True)
    )
