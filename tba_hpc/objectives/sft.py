"""Supervised fine-tuning on trajectories: the cross-entropy −log π_θ(y|x) of a response, summed over its tokens.

With `min_reward` it is rejection sampling: only responses with at least this reward are learned from, the others have
no loss (the fine-tuning of STaR, arXiv 2203.14465, and of RAFT, arXiv 2304.06767, without their rounds).

Where it departs from the sources: the mean is over all trajectories of the batch, so that fewer that are kept make a
smaller step; RAFT keeps the best of a query, STaR the right ones once each. There is no reference and no β.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tba_hpc.config import SFTObjectiveConfig
from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.objectives.terms import log_ratio, sequence_logprob


class SFT(Objective):
    """Imitates what is in the buffer, or the good part of it."""

    context_names = ()
    metric_names = ("kept", "log_ratio")
    """1 for a trajectory that is learned from, and κ (nats)."""

    def __init__(self, config: SFTObjectiveConfig) -> None:
        self._min_reward = -torch.inf if config.min_reward is None else config.min_reward

    def group_context(self, logprobs: Tensor, inputs: LossInputs, beta: float) -> Tensor:
        """`[N, 0]`: no trajectory depends on another."""
        return logprobs.new_zeros(len(logprobs), 0)

    def loss(
        self, logprobs: Tensor, inputs: LossInputs, context: Tensor, beta: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        kept = (inputs.rewards >= self._min_reward).float()
        metrics = {"kept": kept, "log_ratio": log_ratio(logprobs, inputs).detach()}
        return -kept * sequence_logprob(logprobs, inputs), metrics
