"""Proximal RLOO: RLOO's advantage with PPO's clipped importance ratio (Noukhovitch et al., arXiv 2410.18252, where
RLOO is made fit for off-policy data; the clipped surrogate is equation 7 of Schulman et al., arXiv 1707.06347).

    loss_j = −min(ρ_j Â_j, clip(ρ_j, 1 − ε_low, 1 + ε_high) Â_j),
    Â_j = r̃_j − 1/(K−1) Σ_{i≠j} r̃_i,      r̃ = r − β κ,      ρ_j = π_θ(y_j|x) / π_behavior(y_j|x),

with κ = log π(y|x) − log π_ref(y|x) of the policy that sampled, and Â without a gradient. ρ is of the whole response,
as RLOO takes a response for one action. At ρ = 1 the gradient is that of `rloo`.

Where it departs from the source: κ and π_behavior are those of the stored log-probabilities, so that the responses of
one query may be of several policies; ε may differ below and above 1, and is 0.2 by default; log ρ is cut at 20 nats; a
response that is alone of its query has Â = 0.
"""

from __future__ import annotations

from torch import Tensor

from tba_hpc.config import ProximalRLOOConfig
from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.objectives.groups import leave_one_out
from tba_hpc.objectives.terms import (
    clipped,
    importance_ratio,
    log_ratio,
    masked,
    regularised_rewards,
    sequence_logprob,
)


class ProximalRLOO(Objective):
    """RLOO that stops pushing a response once its probability has changed enough."""

    context_names = ("advantage",)
    metric_names = ("advantage", "log_ratio", "importance_ratio", "clip_fraction")
    """|Â| (reward units), κ (nats), ρ, and 1 where the clipped ratio is in force, so that there is no gradient."""

    def __init__(self, config: ProximalRLOOConfig) -> None:
        self._clip = config.clip

    def group_context(self, logprobs: Tensor, inputs: LossInputs, beta: float) -> Tensor:
        return leave_one_out(regularised_rewards(inputs, beta), inputs.group_ids)[:, None]

    def loss(
        self, logprobs: Tensor, inputs: LossInputs, context: Tensor, beta: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (advantage,) = context.unbind(dim=-1)
        behavior = masked(inputs.behavior_logprobs, inputs.mask).sum(dim=-1)
        ratio = importance_ratio(sequence_logprob(logprobs, inputs), behavior)
        surrogate, is_clipped = clipped(ratio, advantage, self._clip)
        metrics = {
            "advantage": advantage.abs(),
            "log_ratio": log_ratio(logprobs, inputs).detach(),
            "importance_ratio": ratio.detach(),
            "clip_fraction": is_clipped.float(),
        }
        return -surrogate, metrics
