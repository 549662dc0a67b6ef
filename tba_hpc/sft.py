"""Supervised fine-tuning on a task's reference solutions: the policy that reinforcement learning starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tba_hpc.config import ModelConfig, SftConfig
from tba_hpc.evaluator import EvaluationResult, evaluate
from tba_hpc.models import Sequences, fresh_llama, load_policy, load_tokenizer, room_for_prompt, token_logprobs
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.rollout.text import encode_prompts
from tba_hpc.run_dir import RunDir
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import make_task
from tba_hpc.tasks.base import Task
from tba_hpc.trajectory import Trajectory, TrajectoryBatch


@dataclass(frozen=True, slots=True)
class SftResult:
    checkpoint: Path
    """Folder with the model and its tokenizer in Hugging Face format."""
    steps: int
    """Optimizer steps done."""
    evaluation: EvaluationResult | None
    """Of the saved weights; None where the configuration skips evaluation."""


def run_sft(config: SftConfig, report: Callable[[dict[str, float]], None]) -> SftResult:
    """Trains until an evaluation reaches `stop_at_accuracy`, at most `max_steps` steps, and saves the model to
    `run_dir/final`. The same configuration gives the same model, on the same machine and number of threads.

    `report` gets the metrics of every step: `step`, `loss` (mean cross-entropy in nats a token), `learning_rate`,
    `grad_norm`, and where an evaluation followed, `accuracy`. Raises `ConfigError` for a checkpoint that is there
    already, a task without solutions, or a solution longer than `max_response_tokens`."""
    checkpoint = RunDir(config.run_dir).final
    if checkpoint.exists():
        raise ConfigError(f"{checkpoint} exists: move it away, or choose another run_dir")
    setup = _setup(config)
    steps, evaluation = _train(setup, _corpus(setup), report)
    setup.model.save_pretrained(checkpoint)
    setup.tokenizer.save_pretrained(checkpoint)
    return SftResult(checkpoint, steps, evaluation)


@dataclass(frozen=True, slots=True)
class _Setup:
    """What every part of the training needs."""

    config: SftConfig
    task: Task[Any]
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    max_prompt_tokens: int
    """What the model's positions leave for a prompt."""
    chunk_tokens: int
    """Logits exist for this many tokens at a time."""


def _setup(config: SftConfig) -> _Setup:
    task = make_task(config.task)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if config.model is not None:
        model, tokenizer = load_policy(config.model.path, config.model, device), load_tokenizer(config.model.path)
        chunk_tokens = config.model.logprob_chunk_tokens
    else:
        assert config.init is not None  # the configuration has one or the other
        tokenizer = task.new_tokenizer()
        model = fresh_llama(config.init, tokenizer, config.seed).to(device)  # type: ignore[arg-type]
        chunk_tokens = ModelConfig.model_fields["logprob_chunk_tokens"].default
    room = room_for_prompt(model.config, config.max_response_tokens)
    return _Setup(config, task, model, tokenizer, room, chunk_tokens)


def _corpus(setup: _Setup) -> TrajectoryBatch:
    """Every problem of the training split with its solution for a response."""
    task, tokenizer, limit = setup.task, setup.tokenizer, setup.config.max_response_tokens
    prompts = [task.prompt("train", i) for i in range(task.size("train"))]
    prompt_tokens = encode_prompts(tokenizer, prompts, setup.max_prompt_tokens)
    solutions = tokenizer([task.solution(prompt) for prompt in prompts], add_special_tokens=False)["input_ids"]
    for prompt, solution in zip(prompts, solutions, strict=True):
        if len(solution) + 1 > limit:
            raise ConfigError(
                f"the solution of prompt {prompt.id} ({prompt.text[:60]!r}) has {len(solution) + 1} tokens with the "
                f"end-of-sequence token, more than max_response_tokens = {limit}"
            )
    return TrajectoryBatch.from_trajectories(
        [
            _demonstration(prompt.id, tokens, np.array([*solution, tokenizer.eos_token_id], np.int32))
            for prompt, tokens, solution in zip(prompts, prompt_tokens, solutions, strict=True)
        ]
    )


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


def _train(
    setup: _Setup, corpus: TrajectoryBatch, report: Callable[[dict[str, float]], None]
) -> tuple[int, EvaluationResult | None]:
    """Number of steps done, and the evaluation after the last of them."""
    training, evaluation = setup.config.training, None
    optimizer = torch.optim.AdamW(setup.model.parameters(), weight_decay=training.weight_decay)
    batches = _shuffled_batches(len(corpus), training.batch_size, setup.config.seed)
    for step in range(training.max_steps):
        learning_rate = training.learning_rate(step)
        metrics = _step(setup, optimizer, corpus.select(next(batches)), learning_rate)
        metrics |= {"step": float(step), "learning_rate": learning_rate}
        due = (step + 1) % training.evaluate_every == 0 or step + 1 == training.max_steps
        if due and setup.config.evaluation.problems:
            evaluation = _evaluate(setup)
            metrics["accuracy"] = evaluation.accuracy.share
        report(metrics)
        if metrics.get("accuracy", 0.0) >= training.stop_at_accuracy:
            return step + 1, evaluation
    return training.max_steps, evaluation


def _shuffled_batches(n: int, batch_size: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Indices of batch after batch, epoch after epoch, without end; the last batch of an epoch may be smaller."""
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(n)
        yield from (order[start : start + batch_size] for start in range(0, n, batch_size))


def _step(
    setup: _Setup, optimizer: torch.optim.Optimizer, batch: TrajectoryBatch, learning_rate: float
) -> dict[str, float]:
    """One optimizer step on the mean cross-entropy of the solutions' tokens."""
    model, max_grad_norm = setup.model, setup.config.training.max_grad_norm
    sequences = Sequences.from_trajectories(batch, setup.tokenizer.pad_token_id, model.device)
    logprobs = token_logprobs(model, sequences, temperature=1.0, chunk_tokens=setup.chunk_tokens)
    loss = -logprobs.sum() / len(batch.response_tokens)
    loss.backward()  # type: ignore[no-untyped-call]
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    optimizer.zero_grad()
    return {"loss": loss.item(), "grad_norm": grad_norm.item()}


def _evaluate(setup: _Setup) -> EvaluationResult:
    return evaluate(
        HFEngine(setup.model, setup.tokenizer.eos_token_id),
        setup.task,
        setup.tokenizer,
        setup.config.evaluation,
        setup.max_prompt_tokens,
        setup.config.max_response_tokens,
    )
