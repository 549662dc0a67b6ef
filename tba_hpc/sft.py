"""Supervised fine-tuning on a task's reference solutions: the policy that reinforcement learning starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tba_hpc.config import ModelConfig, SftConfig
from tba_hpc.demonstrations import demonstrations
from tba_hpc.evaluator import EvaluationResult, evaluate, number_of_problems
from tba_hpc.metrics import MetricsWriter
from tba_hpc.models import (
    Sequences,
    fresh_llama,
    load_policy,
    load_tokenizer,
    recompute_activations,
    room_for_prompt,
    token_logprobs,
)
from tba_hpc.optim.micro_batches import plan
from tba_hpc.optim.parameters import TrainedParameters
from tba_hpc.preflight import check_prompts
from tba_hpc.progress import Columns
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.run_dir import RunDir
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import make_task
from tba_hpc.tasks.base import Task
from tba_hpc.trajectory import TrajectoryBatch

COLUMNS: Columns = (
    ("loss", "loss", ".4f"),
    ("grad_norm", "gradient", ".3g"),
    ("learning_rate", "learning rate", ".2e"),
    ("accuracy", "accuracy", ".1%"),
)


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

    `report` gets the metrics of every step, which also go to `metrics.jsonl` and TensorBoard: `step` (0, 1, …), `loss`
    (mean cross-entropy in nats a token), `learning_rate`, `grad_norm`, and where an evaluation followed, `accuracy`.
    Raises `ConfigError` for results that are there already, a task without solutions, or a demonstration that is too
    long."""
    run_dir = RunDir(config.run_dir)
    for file in (run_dir.final, run_dir.metrics):
        if file.exists():
            raise ConfigError(f"{file} exists: move it away, or choose another run_dir")
    setup = _setup(config)
    training = config.training
    corpus = demonstrations(
        setup.task, setup.tokenizer, setup.max_prompt_tokens, config.max_response_tokens, training.skip_too_long
    )
    _check_evaluation(setup)
    config.run_dir.mkdir(parents=True, exist_ok=True)
    with closing(MetricsWriter(run_dir)) as writer:

        def record(metrics: dict[str, float]) -> None:
            writer.scalars(int(metrics["step"]) + 1, {name: metrics[name] for name in metrics if name != "step"})
            report(metrics)

        steps, evaluation = _train(setup, corpus, record)
    setup.model.save_pretrained(run_dir.final)
    setup.tokenizer.save_pretrained(run_dir.final)
    return SftResult(run_dir.final, steps, evaluation)


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


def _check_evaluation(setup: _Setup) -> None:
    """Raises now what would else be raised in the middle of training: `ConfigError` for problems that are not there, or
    a prompt that is too long."""
    settings = setup.config.evaluation
    if settings.problems:
        n_problems = number_of_problems(setup.task, settings.split, settings.problems)
        check_prompts(setup.task, setup.tokenizer, settings.split, n_problems, setup.max_prompt_tokens)


def _train(
    setup: _Setup, corpus: TrajectoryBatch, report: Callable[[dict[str, float]], None]
) -> tuple[int, EvaluationResult | None]:
    """Number of steps done, and the evaluation after the last of them."""
    training, evaluation = setup.config.training, None
    learner = _Learner(setup)
    batches = _shuffled_batches(len(corpus), training.batch_size, setup.config.seed)
    for step in range(training.max_steps):
        learning_rate = training.learning_rate(step)
        metrics = learner.step(corpus.select(next(batches)), learning_rate)
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


class _Learner:
    """The model and its optimizer."""

    def __init__(self, setup: _Setup) -> None:
        model_config, self._training = setup.config.model, setup.config.training
        self._recomputes = model_config is not None and model_config.gradient_checkpointing
        if self._recomputes:
            recompute_activations(setup.model)
        self._setup = setup
        self._parameters = TrainedParameters(setup.model)
        self._optimizer = torch.optim.AdamW(self._parameters.named().values(), weight_decay=self._training.weight_decay)

    def step(self, batch: TrajectoryBatch, learning_rate: float) -> dict[str, float]:
        """One optimizer step on the mean cross-entropy of the solutions' tokens."""
        # An evaluation leaves the model in evaluation mode, in which nothing is recomputed; nothing else depends on it.
        self._setup.model.train(self._recomputes)
        self._parameters.zero_gradients()
        loss = self._backward(batch)
        grad_norm = torch.nn.utils.clip_grad_norm_(self._parameters.named().values(), self._training.max_grad_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._parameters.copy_to_model()
        return {"loss": loss, "grad_norm": grad_norm.item()}

    def _backward(self, batch: TrajectoryBatch) -> float:
        """Adds the gradient of the loss, in micro-batches. Returns the loss."""
        lengths, total = batch.rows["prompt_length"] + batch.rows["response_length"], 0.0
        for part in plan(lengths, np.arange(len(batch)), self._training.micro_batch_tokens):
            rows = batch.select(np.sort(part.indices))  # sorted, so that a batch that fits is computed as it is
            sequences = Sequences.from_trajectories(rows, self._setup.tokenizer.pad_token_id, self._setup.model.device)
            logprobs = token_logprobs(
                self._setup.model, sequences, temperature=1.0, chunk_tokens=self._setup.chunk_tokens
            )
            loss = -logprobs.sum() / len(batch.response_tokens)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total


def _evaluate(setup: _Setup) -> EvaluationResult:
    return evaluate(
        HFEngine(setup.model, ResponseEnd.of(setup.model, setup.tokenizer)),
        setup.task,
        setup.tokenizer,
        setup.config.evaluation,
        setup.max_prompt_tokens,
        setup.config.max_response_tokens,
    )
