"""The objective on a batch of any size, in micro-batches: gradients and metrics do not depend on the split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from tba_hpc.models import Sequences, token_logprobs
from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.optim.micro_batches import MicroBatch, plan
from tba_hpc.trajectory import SampledBatch


@dataclass(frozen=True, slots=True, eq=False)
class BatchLoss:
    """Runs the policy and the objective on batches."""

    model: PreTrainedModel
    objective: Objective
    pad_token_id: int
    temperature: float
    """The policy is softmax(logits / temperature)."""
    chunk_tokens: int
    """Most tokens that have logits at a time."""
    micro_batch_tokens: int
    """Most tokens, padding included, in one pass."""
    device: torch.device

    @property
    def sum_names(self) -> tuple[str, ...]:
        """What `backward` sums over the trajectories, and last the micro-batches it ran."""
        return (*self.objective.metric_names, "loss", "micro_batches")

    def backward(self, batch: SampledBatch, beta: float, scale: float, backward: Callable[[Tensor], None]) -> Tensor:
        """Calls `backward` on `scale` × the summed losses of each micro-batch. Returns sums over the batch, `[M]`
        float64 in the order of `sum_names`; zeros for an empty batch, which causes no pass at all."""
        rows = batch.trajectories.rows
        micro_batches = plan(rows["prompt_length"] + rows["response_length"], batch.group_ids, self.micro_batch_tokens)
        contexts = self._split_contexts(batch, micro_batches, beta)
        sums = torch.zeros(len(self.sum_names), dtype=torch.float64, device=self.device)
        for micro_batch in micro_batches:
            loss, columns = self._losses(batch, micro_batch, contexts, beta)
            backward(scale * loss.sum())
            sums[:-1] += columns.sum(dim=-1, dtype=torch.float64)
            sums[-1] += 1
        return sums

    def _losses(
        self, batch: SampledBatch, micro_batch: MicroBatch, contexts: Tensor, beta: float
    ) -> tuple[Tensor, Tensor]:
        """The loss of each row, `[N]`, and the detached metrics and loss, `[M - 1, N]`."""
        logprobs, inputs = self._forward(batch.select(micro_batch.indices))
        if micro_batch.split:
            context = contexts[torch.from_numpy(micro_batch.indices).to(self.device)]
        else:
            context = self.objective.group_context(logprobs.detach(), inputs, beta)
        loss, metrics = self.objective.loss(logprobs, inputs, context, beta)
        return loss, torch.stack([*(metrics[name] for name in self.objective.metric_names), loss.detach()])

    @torch.no_grad()
    def _split_contexts(self, batch: SampledBatch, micro_batches: list[MicroBatch], beta: float) -> Tensor:
        """Context `[N, C]` of the rows whose groups are split over micro-batches, from a pass without gradients; that
        of other rows is left at 0."""
        contexts = torch.zeros(len(batch), len(self.objective.context_names), device=self.device)
        parts = [m.indices for m in micro_batches if m.split]
        if not parts:
            return contexts
        passes = [self._forward(batch.select(indices)) for indices in parts]
        indices = np.concatenate(parts)
        logprobs = _stack([logprobs for logprobs, _ in passes])
        inputs = self._inputs(batch.select(indices), _stack([inputs.mask for _, inputs in passes]))
        contexts[torch.from_numpy(indices).to(self.device)] = self.objective.group_context(logprobs, inputs, beta)
        return contexts

    def _forward(self, batch: SampledBatch) -> tuple[Tensor, LossInputs]:
        """log π_θ of the response tokens, `[N, R]`, and what the objective needs beside it."""
        sequences = Sequences.from_trajectories(batch.trajectories, self.pad_token_id, self.device)
        logprobs = token_logprobs(self.model, sequences, self.temperature, self.chunk_tokens)
        return logprobs, self._inputs(batch, sequences.response_mask)

    def _inputs(self, batch: SampledBatch, mask: Tensor) -> LossInputs:
        """`mask [N, R]` is true at response tokens."""
        trajectories = batch.trajectories

        def padded(values: NDArray[np.float32]) -> Tensor:
            zeros = torch.zeros(mask.shape, device=self.device)
            return zeros.masked_scatter(mask, torch.from_numpy(values).to(self.device))

        return LossInputs(
            rewards=torch.from_numpy(trajectories.rows["reward"].astype(np.float32)).to(self.device),
            reference_logprobs=padded(trajectories.reference_logprobs),
            behavior_logprobs=padded(trajectories.behavior_logprobs),
            mask=mask,
            group_ids=torch.from_numpy(batch.group_ids.astype(np.int64)).to(self.device),
        )


def _stack(parts: list[Tensor]) -> Tensor:
    """The rows of all parts `[N_i, R_i]`, padded on the right to the longest: `[ΣN_i, max R_i]`."""
    width = max(part.shape[1] for part in parts)
    return torch.cat([pad(part, (0, width - part.shape[1])) for part in parts])
