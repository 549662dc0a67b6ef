"""Group Relative Policy Optimization (Shao et al., DeepSeekMath, arXiv 2402.03300, equations 3 and 4), with a reward at
the end of the response.

    loss_j = (1/|y_j|) Σ_t [ −min(ρ_jt Â_j, clip(ρ_jt, 1 − ε_low, 1 + ε_high) Â_j) + β k3_jt ],
    Â_j = (r_j − mean_i r_i) / (std_i r_i + 10⁻⁴),      ρ_jt = π_θ(y_jt) / π_behavior(y_jt),
    k3 = π_ref/π_θ − log(π_ref/π_θ) − 1      of the token y_jt.

Â and π_behavior are without a gradient. The KL divergence is in the loss, not in the reward. k3 estimates
KL(π_θ‖π_ref), but its gradient does not estimate that of KL(π_θ‖π_ref): on-policy the mean of (1 − π_ref/π_θ) ∇ log π_θ
is the gradient of KL(π_ref‖π_θ) for each token, and what a token does to the KL divergence of those after it is left
out (Tang and Munos, arXiv 2506.09477). So the optimum is not exactly that of E[r] − β KL(π‖π_ref); and dividing
by the deviation makes β weigh more the more the responses of a query differ in reward.

Where it departs from the source:

* 10⁻⁴ is added to the deviation, of which the paper does not say how to divide by 0, and the deviation has K − 1 in its
  denominator (both as in TRL);
* ε may differ below and above 1; the paper has one, without saying its size: 0.2 is PPO's;
* π_behavior is that of the stored log-probabilities, so that responses of one query may be of several policies;
* log ρ and log π_ref − log π_θ are cut at 20 nats; an empty response has no loss.
"""

from __future__ import annotations

from torch import Tensor

from tba_hpc.config import GRPOConfig
from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.objectives.groups import centred, group_deviation
from tba_hpc.objectives.terms import clipped_token_losses, token_mean

SMALLEST_DEVIATION = 1e-4


class GRPO(Objective):
    """Token by token PPO with the normalised reward of the group for an advantage."""

    context_names = ("advantage",)
    metric_names = ("advantage", "log_ratio", "importance_ratio", "clip_fraction", "kl")
    """|Â|, κ (nats), ρ and the share of clipped tokens as means over a response, and the sum of k3 (nats)."""

    def __init__(self, config: GRPOConfig) -> None:
        self._clip = config.clip

    def group_context(self, logprobs: Tensor, inputs: LossInputs, beta: float) -> Tensor:
        deviation = group_deviation(inputs.rewards, inputs.group_ids)
        return (centred(inputs.rewards, inputs.group_ids) / (deviation + SMALLEST_DEVIATION))[:, None]

    def loss(
        self, logprobs: Tensor, inputs: LossInputs, context: Tensor, beta: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (advantage,) = context.unbind(dim=-1)
        losses, metrics = clipped_token_losses(logprobs, inputs, advantage, self._clip, beta)
        return token_mean(losses, inputs.mask), metrics
