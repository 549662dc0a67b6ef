"""The reference policy π_ref: scores what was sampled, and may be moved to where the policy is (TBA′)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from tba_hpc.models import Sequences, copied_state, load_weights, token_logprobs
from tba_hpc.optim.micro_batches import plan
from tba_hpc.trajectory import SampledBatch, TrajectoryBatch, ragged_indices


class ReferencePolicy:
    """Searchers score every response with it once, where it was sampled. Trainers have a copy if it moves: what an
    earlier reference has scored must not be learned from as it is."""

    def __init__(
        self,
        model: PreTrainedModel,
        pad_token_id: int,
        temperature: float,
        chunk_tokens: int,
        batch_tokens: int,
        version: int = 0,
    ) -> None:
        """`batch_tokens`: most tokens, padding included, in one pass; `chunk_tokens` of them have logits at a time."""
        self._model = model
        self._pad_token_id = pad_token_id
        self._temperature = temperature
        self._chunk_tokens = chunk_tokens
        self._batch_tokens = batch_tokens
        self.version = version
        """Optimizer step of the policy that it is; 0 for the one that the run began with."""

    @torch.no_grad()
    def score(self, batch: TrajectoryBatch) -> TrajectoryBatch:
        """The batch with log π_ref of its response tokens, and the version of π_ref, filled in."""
        lengths = batch.rows["prompt_length"] + batch.rows["response_length"]
        logprobs = np.zeros(len(batch.response_tokens), np.float32)
        for part in plan(lengths, np.arange(len(batch), dtype=np.int32), self._batch_tokens):
            sequences = Sequences.from_trajectories(batch.select(part.indices), self._pad_token_id, self._model.device)
            values = token_logprobs(self._model, sequences, self._temperature, self._chunk_tokens)
            flat = ragged_indices(batch.response_offsets, part.indices)
            logprobs[flat] = values[sequences.response_mask].cpu().numpy()
        rows = batch.rows.copy()
        rows["reference_version"] = self.version
        return replace(batch, rows=rows, reference_logprobs=logprobs)

    def current(self, batch: SampledBatch) -> SampledBatch:
        """The batch with everything that another version has scored scored anew."""
        stale = np.flatnonzero(batch.trajectories.rows["reference_version"] != self.version)
        if not len(stale):
            return batch
        trajectories = batch.trajectories
        scored = self.score(trajectories.select(stale))
        logprobs, rows = trajectories.reference_logprobs.copy(), trajectories.rows.copy()
        logprobs[ragged_indices(trajectories.response_offsets, stale)] = scored.reference_logprobs
        rows["reference_version"] = self.version
        return replace(batch, trajectories=replace(trajectories, rows=rows, reference_logprobs=logprobs))

    def reset(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Becomes the policy of these weights, those of optimizer step `version`. Raises as `load_weights` does."""
        load_weights(self._model, weights)
        self.version = version

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self._model.named_parameters()

    def copied_state(self) -> dict[str, torch.Tensor]:
        """Its weights as they are now, in CPU memory of their own, for `save_pretrained`."""
        return copied_state(self._model)

    def save_pretrained(self, path: Path, state: Mapping[str, torch.Tensor]) -> None:
        """Writes it with the weights of `state` in Hugging Face format; with a copy, another thread may move it
        meanwhile."""
        self._model.save_pretrained(path, state_dict=dict(state))
