"""REINFORCE with the mean reward of the group as a baseline and the KL divergence in the reward.

The policy gradient (Williams, Machine Learning 8, 1992) of J = E[r] − β KL(π_θ‖π_ref) needs the reward r̃ = r − β κ
with κ = log π(y|x) − log π_ref(y|x) of the policy that sampled (as in arXiv 2402.14740, section 2). With the K
responses of a query,

    loss_j = −Â_j log π_θ(y_j|x),      Â_j = r̃_j − mean_i r̃_i,      Â without a gradient.

Where it departs from the source:

* the baseline is the mean over the group, the trajectory itself among them, which scales the expected gradient by
  (K−1)/K; a moving average over batches, as in 2402.14740, would know nothing of how hard a query is;
* the data may be of an earlier policy, and no importance weight corrects for it: then this is no gradient of J;
* κ has the recorded log-probabilities, which are those of the distribution sampled from: with exploration or top-p
  below 1 that is not the policy.

On-policy the gradient is that of `tb_vargrad`, which differs in one thing: its κ is that of the policy as it is now,
and that is what makes it right off-policy.
"""

from __future__ import annotations

from torch import Tensor

from tba_hpc.config import ReinforceConfig
from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.objectives.groups import centred
from tba_hpc.objectives.terms import policy_gradient, regularised_rewards


class Reinforce(Objective):
    """The plain policy gradient of E[r] − β KL(π‖π_ref)."""

    context_names = ("advantage",)
    metric_names = ("advantage", "log_ratio")
    """|Â| (reward units) and κ (nats)."""

    def __init__(self, config: ReinforceConfig) -> None:
        """There is nothing to choose."""

    def group_context(self, logprobs: Tensor, inputs: LossInputs, beta: float) -> Tensor:
        return centred(regularised_rewards(inputs, beta), inputs.group_ids)[:, None]

    def loss(
        self, logprobs: Tensor, inputs: LossInputs, context: Tensor, beta: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (advantage,) = context.unbind(dim=-1)
        return policy_gradient(logprobs, inputs, advantage)
