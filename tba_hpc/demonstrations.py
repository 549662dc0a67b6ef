"""A task's reference solutions as trajectories to imitate."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from tba_hpc.rollout.text import encode_prompts
from tba_hpc.settings import ConfigError
from tba_hpc.tasks.base import Task
from tba_hpc.trajectory import Prompt, Trajectory, TrajectoryBatch

logger = logging.getLogger(__name__)


def demonstrations(
    task: Task[Any],
    tokenizer: PreTrainedTokenizerBase,
    max_prompt_tokens: int,
    max_response_tokens: int,
    skip_too_long: bool,
) -> TrajectoryBatch:
    """Every problem of the training split with its solution, closed by the end-of-sequence token, for a response.

    One whose prompt or response is too long is an error, or with `skip_too_long` left out; a warning then says how many
    are. Raises `ConfigError` for it, also where none would be left; `ValueError` for a task without solutions."""
    prompts = [task.prompt("train", i) for i in range(task.size("train"))]
    prompt_tokens = encode_prompts(tokenizer, prompts, sys.maxsize)
    responses = _responses(task, tokenizer, prompts, prompt_tokens)
    kept = []
    for prompt, tokens, response in zip(prompts, prompt_tokens, responses, strict=True):
        if len(tokens) <= max_prompt_tokens and len(response) <= max_response_tokens:
            kept.append(_demonstration(prompt.id, tokens, response))
        elif not skip_too_long:
            raise ConfigError(
                f"the solution of prompt {prompt.id} ({prompt.text[:60]!r}) has {len(response)} tokens with the "
                f"end-of-sequence token, and the prompt has {len(tokens)}: the most are max_response_tokens = "
                f"{max_response_tokens} and the {max_prompt_tokens} positions that the model has beside those; "
                "training.skip_too_long=true leaves such demonstrations out"
            )
    if not kept:
        raise ConfigError(
            f"none of the {len(prompts)} demonstrations fits into {max_prompt_tokens} tokens of a prompt and "
            f"max_response_tokens = {max_response_tokens}"
        )
    if len(kept) < len(prompts):
        logger.warning(
            "%d of %d demonstrations are left out, as their prompt has more than %d or their solution more than %d "
            "tokens",
            len(prompts) - len(kept),
            len(prompts),
            max_prompt_tokens,
            max_response_tokens,
        )
    return TrajectoryBatch.from_trajectories(kept)


def _responses(
    task: Task[Any], tokenizer: PreTrainedTokenizerBase, prompts: list[Prompt], prompt_tokens: list[NDArray[np.int32]]
) -> list[NDArray[np.int32]]:
    """Tokens of each solution as they are behind its prompt: some tokenizers put a space before a text of its own.
    Where the tokens of the two would grow together, those of the solution alone."""
    solutions = [task.solution(prompt) for prompt in prompts]
    alone = tokenizer(solutions, add_special_tokens=False)["input_ids"]
    joined = tokenizer([prompt.text + solution for prompt, solution in zip(prompts, solutions, strict=True)])[
        "input_ids"
    ]
    responses = []
    for prompt, start, own, both in zip(prompts, prompt_tokens, alone, joined, strict=True):
        behind = not prompt.messages and both[: len(start)] == start.tolist()
        responses.append(np.array([*(both[len(start) :] if behind else own), tokenizer.eos_token_id], np.int32))
    return responses


def _demonstration(prompt_id: int, prompt: NDArray[np.int32], response: NDArray[np.int32]) -> Trajectory:
    """A solution as a trajectory that no policy sampled."""
    unknown = np.zeros(len(response), np.float32)
    return Trajectory(
        prompt_id=prompt_id,
        prompt_tokens=prompt,
        response_tokens=response,
        behavior_logprobs=unknown,
        reference_logprobs=unknown,
        reward=0.0,
        correct=True,
        finished=True,
        temperature=1.0,
        policy_version=0,
        reference_version=0,
        searcher=0,
    )
