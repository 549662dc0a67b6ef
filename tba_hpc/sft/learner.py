"""The model of fine-tuning and its optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tba_hpc.config import ModelConfig, SftConfig
from tba_hpc.models import Sequences, recompute_activations, token_logprobs
from tba_hpc.optim.micro_batches import plan
from tba_hpc.optim.trained_model import TrainedModel
from tba_hpc.trajectory import TrajectoryBatch


class SftLearner:
    """Changes the model it is given."""

    def __init__(self, config: SftConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._training = config.training
        self._recomputes = config.model is not None and config.model.gradient_checkpointing
        self._chunk_tokens: int = (
            config.model.logprob_chunk_tokens
            if config.model is not None
            else ModelConfig.model_fields["logprob_chunk_tokens"].default
        )
        if self._recomputes:
            recompute_activations(model)
        self._model, self._tokenizer = model, tokenizer
        self._trained = TrainedModel(model, self._training.weight_decay)

    def step(self, batch: TrajectoryBatch, learning_rate: float) -> dict[str, float]:
        """One optimizer step on the mean cross-entropy of the solutions' tokens."""
        # An evaluation leaves the model in evaluation mode, in which nothing is recomputed; nothing else depends on it.
        self._model.train(self._recomputes)
        parameters = self._trained.parameters
        parameters.zero_gradients()
        loss = self._backward(batch)
        grad_norm = torch.nn.utils.clip_grad_norm_(parameters.named().values(), self._training.max_grad_norm)
        self._trained.update(learning_rate)
        return {"loss": loss, "grad_norm": grad_norm.item()}

    def _backward(self, batch: TrajectoryBatch) -> float:
        """Adds the gradient of the loss, in micro-batches. Returns the loss."""
        lengths, total = batch.rows["prompt_length"] + batch.rows["response_length"], 0.0
        for part in plan(lengths, np.arange(len(batch)), self._training.micro_batch_tokens):
            rows = batch.select(np.sort(part.indices))  # sorted, so that a batch that fits is computed as it is
            sequences = Sequences.from_trajectories(rows, self._tokenizer.pad_token_id, self._model.device)
            logprobs = token_logprobs(self._model, sequences, temperature=1.0, chunk_tokens=self._chunk_tokens)
            loss = -logprobs.sum() / len(batch.response_tokens)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total

    def copied_state(self) -> dict[str, Tensor]:
        """Weights and optimizer state, in CPU memory of their own."""
        return {name: tensor.to("cpu", copy=True) for name, tensor in self._trained.state().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes back to a `copied_state`. Raises `ValueError` for that of another model."""
        self._trained.load_state(state)

    def save_pretrained(self, path: Path, state: Mapping[str, Tensor] | None = None) -> None:
        """Writes model and tokenizer in Hugging Face format into the folder `path`: the model of a `copied_state`, by
        default as it is now. Raises `OSError`."""
        self._trained.save_pretrained(path, self._tokenizer, state)
