"""Optimization in plain PyTorch: AdamW, every trainer with a whole copy of the policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tba_hpc.config import ModelConfig, TrainerConfig
from tba_hpc.models import recompute_activations
from tba_hpc.objectives.base import Objective
from tba_hpc.optim.batch_loss import BatchLoss
from tba_hpc.optim.trained_model import TrainedModel
from tba_hpc.trajectory import SampledBatch


def _alone(tensor: Tensor) -> None:
    """The sum over a single trainer."""


class TorchEngine:
    """An `OptimEngine`. Trainers differ in their share of a batch only: gradients are summed over them, so weights and
    optimizer state stay the same everywhere."""

    def __init__(
        self,
        model: PreTrainedModel,
        pad_token_id: int,
        objective: Objective,
        trainer: TrainerConfig,
        model_config: ModelConfig,
        temperature: float,
        device: torch.device,
        all_reduce: Callable[[Tensor], None] = _alone,
    ) -> None:
        """`model` is on `device` and without dropout, as `load_policy` gives it. `all_reduce` sums a tensor over the
        trainers in place. Raises `ValueError` for a model in float16."""
        if model.dtype == torch.float16:
            raise ValueError("model.dtype = float16 cannot be trained without loss scaling: use bfloat16 or float32")
        if model_config.gradient_checkpointing:
            recompute_activations(model)
            model.train()
        self._model, self._device, self._all_reduce = model, device, all_reduce
        self._max_grad_norm = trainer.max_grad_norm
        self._batch_loss = BatchLoss(
            model=model,
            objective=objective,
            pad_token_id=pad_token_id,
            temperature=temperature,
            chunk_tokens=model_config.logprob_chunk_tokens,
            micro_batch_tokens=trainer.micro_batch_tokens,
            device=device,
        )
        self._trained = TrainedModel(model, trainer.weight_decay, trainer.adam_betas)
        self._parameters = self._trained.parameters

    def step(self, batch: SampledBatch, total: int, beta: float, learning_rate: float) -> dict[str, float]:
        """Every trainer joins the same reductions, also one whose share is empty: none is left waiting."""
        self._parameters.zero_gradients()
        sums = self._batch_loss.backward(batch, beta, 1 / total, Tensor.backward)
        self._parameters.reduce_gradients(self._all_reduce)
        norm = self._parameters.gradient_norm()
        metrics = self._reduce_metrics(sums, batch, total, not math.isfinite(norm))
        if not metrics["skipped_updates"]:
            self._update(norm, learning_rate)
        return {**metrics, "grad_norm": norm}

    def _reduce_metrics(self, sums: Tensor, batch: SampledBatch, total: int, skip: bool) -> dict[str, float]:
        """Metrics over all trainers; `skipped_updates` is 1 if any of them wants to skip, so that all decide alike."""
        tokens = int(batch.trajectories.rows["response_length"].sum())
        reduced = torch.cat([sums, sums.new_tensor([tokens, skip])])
        self._all_reduce(reduced)
        *names, micro_batches = self._batch_loss.sum_names
        *values, n_micro_batches, n_tokens, n_skips = reduced.tolist()
        return {
            **{name: value / total for name, value in zip(names, values, strict=True)},
            micro_batches: n_micro_batches,
            "tokens": n_tokens,
            "skipped_updates": float(n_skips > 0),
        }

    def _update(self, norm: float, learning_rate: float) -> None:
        if norm > self._max_grad_norm:
            self._parameters.scale_gradients(self._max_grad_norm / norm)
        self._trained.update(learning_rate)

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        return [(name, parameter.detach()) for name, parameter in self._model.named_parameters()]

    def save_pretrained(
        self, path: Path, tokenizer: PreTrainedTokenizerBase, state: Mapping[str, Tensor] | None = None
    ) -> None:
        self._trained.save_pretrained(path, tokenizer, state)

    def state(self) -> dict[str, Tensor]:
        return self._trained.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._trained.load_state(state)
