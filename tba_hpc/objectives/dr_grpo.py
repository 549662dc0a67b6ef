"""Dr. GRPO, "GRPO done right" (Liu et al., arXiv 2503.20783, section 3): GRPO without its two normalisations, by the
length of the response and by the deviation of the rewards, which favour long wrong responses and queries that are too
easy or too hard.

    loss_j = Σ_t [ −min(ρ_jt Â_j, clip(ρ_jt, 1 − ε_low, 1 + ε_high) Â_j) + β k3_jt ],      Â_j = r_j − mean_i r_i,

with ρ and k3 as in `grpo`: what is said there of the gradient of k3 holds here, too.

Where it departs from the source:

* the paper drops the KL term (β = 0); it is kept, so that β can mean the same to all objectives;
* the authors' program divides the sum over tokens by a constant, the longest length allowed; here it is not divided;
* ε may differ below and above 1, and is 0.2 by default; π_behavior is that of the stored log-probabilities;
* log ρ and log π_ref − log π_θ are cut at 20 nats.
"""

from __future__ import annotations

from torch import Tensor

from tba_hpc.config import DrGRPOConfig
from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.objectives.groups import centred
from tba_hpc.objectives.terms import clipped_token_losses


class DrGRPO(Objective):
    """Token by token PPO with the centred reward of the group for an advantage."""

    context_names = ("advantage",)
    metric_names = ("advantage", "log_ratio", "importance_ratio", "clip_fraction", "kl")
    """|Â| (reward units), κ (nats), ρ and the share of clipped tokens as means over a response, and the sum of k3
    (nats)."""

    def __init__(self, config: DrGRPOConfig) -> None:
        self._clip = config.clip

    def group_context(self, logprobs: Tensor, inputs: LossInputs, beta: float) -> Tensor:
        return centred(inputs.rewards, inputs.group_ids)[:, None]

    def loss(
        self, logprobs: Tensor, inputs: LossInputs, context: Tensor, beta: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (advantage,) = context.unbind(dim=-1)
        losses, metrics = clipped_token_losses(logprobs, inputs, advantage, self._clip, beta)
        return losses.sum(dim=-1), metrics
