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
from tba_hpc.models import Sequences, fresh_llama, load_policy, load_tokenizer, token_logprobs
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.rollout.text import encode_prompts
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
    `grad_norm`, and where an evaluation followed, `accuracy`. Raises `ValueError` for a checkpoint that is there
    already, a task without solutions, or a solution longer than `max_response_tokens`."""
    checkpoint = config.run_dir / "final"
    if checkpoint.exists():
        raise ValueError(f"{checkpoint} exists: move it away, or choose another run_dir")
    task = make_task(config.task)
    model, tokenizer = _start(config, task)
    corpus = _corpus(config, task, model, tokenizer)
    steps, evaluation = _train(config, model, tokenizer, task, corpus, report)
    model.save_pretrained(checkpoint)
    tokenizer.save_pretrained(checkpoint)
    return SftResult(checkpoint, steps, evaluation)


def _start(config: SftConfig, task: Task[Any]) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model to train and its tokenizer."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if config.model is not None:
        return load_policy(config.model.path, config.model, device), load_tokenizer(config.model.path)
    assert config.init is not None  # the configuration has one or the other
    tokenizer = task.new_tokenizer()
    return fresh_llama(config.init, tokenizer, config.seed).to(device), tokenizer  # type: ignore[arg-type]


def _corpus(
    config: SftConfig, task: Task[Any], model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> TrajectoryBatch:
    """Every problem of the training split with its solution for a response."""
    prompts = [task.prompt("train", i) for i in range(task.size("train"))]
    prompt_tokens = encode_prompts(tokenizer, prompts, _max_prompt_tokens(config, model))
    texts = [task.solution(prompt) for prompt in prompts]
    solutions = tokenizer(texts, add_special_tokens=False)["input_ids"]
    longest = max(range(len(prompts)), key=lambda i: len(solutions[i]))
    if len(solutions[longest]) + 1 > config.max_response_tokens:
        raise ValueError(
            f"the solution of prompt {longest} has {len(solutions[longest]) + 1} tokens with the end-of-sequence "
            f"token, more than max_response_tokens = {config.max_response_tokens}"
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


def _max_prompt_tokens(config: SftConfig, model: PreTrainedModel) -> int:
    """What the model's positions leave for a prompt."""
    positions: int = getattr(model.config, "max_position_embeddings", 2**31)
    return positions - config.max_response_tokens


def _train(
    config: SftConfig,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task[Any],
    corpus: TrajectoryBatch,
    report: Callable[[dict[str, float]], None],
) -> tuple[int, EvaluationResult | None]:
    """Number of steps done, and the evaluation after the last of them."""
    training, evaluation = config.training, None
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=training.weight_decay)
    for step, rows in enumerate(_shuffled_batches(len(corpus), training.batch_size, config.seed)):
        learning_rate = training.learning_rate(step)
        metrics = _step(config, model, tokenizer, optimizer, corpus.select(rows), learning_rate)
        metrics |= {"step": float(step), "learning_rate": learning_rate}
        done = step + 1
        if config.evaluation.problems and (done % training.evaluate_every == 0 or done == training.max_steps):
            evaluation = _evaluate(config, model, tokenizer, task)
            metrics["accuracy"] = evaluation.accuracy
        report(metrics)
        if done == training.max_steps or metrics.get("accuracy", 0.0) >= training.stop_at_accuracy:
            return done, evaluation
    raise AssertionError("the batches never end")


def _shuffled_batches(n: int, batch_size: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Indices of batch after batch, epoch after epoch, without end; the last batch of an epoch may be smaller."""
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(n)
        yield from (order[start : start + batch_size] for start in range(0, n, batch_size))


def _step(
    config: SftConfig,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    optimizer: torch.optim.Optimizer,
    batch: TrajectoryBatch,
    learning_rate: float,
) -> dict[str, float]:
    """One optimizer step on the mean cross-entropy of the solutions' tokens, at temperature 1."""
    chunk_tokens = (config.model or ModelConfig(path="")).logprob_chunk_tokens
    sequences = Sequences.from_trajectories(batch, tokenizer.pad_token_id, model.device)
    loss = -token_logprobs(model, sequences, 1.0, chunk_tokens).sum() / len(batch.response_tokens)
    loss.backward()  # type: ignore[no-untyped-call]
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.training.max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    optimizer.zero_grad()
    return {"loss": loss.item(), "grad_norm": grad_norm.item()}


def _evaluate(
    config: SftConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: Task[Any]
) -> EvaluationResult:
    settings = config.evaluation
    return evaluate(
        HFEngine(model, tokenizer.eos_token_id),
        task,
        tokenizer,
        settings.split,
        settings.problems,
        settings.batch_size,
        _max_prompt_tokens(config, model),
        config.max_response_tokens,
    )
