"""REINFORCE Leave-One-Out (Ahmadian et al., arXiv 2402.14740, section "REINFORCE Leave-One-Out").

Each of the K responses of a query has the mean of the others for a baseline, which leaves the estimate unbiased:

    ∇J = (1/K) Σ_j [ r̃_j − 1/(K−1) Σ_{i≠j} r̃_i ] ∇ log π_θ(y_j|x),      r̃ = r − β κ,

with κ = log π(y|x) − log π_ref(y|x) of the policy that sampled. The loss of a trajectory is
−Â_j log π_θ(y_j|x) with Â_j in brackets, without a gradient: K/(K−1) times that of `reinforce`.

Where it departs from the source: the data may be of an earlier policy, without any correction; κ has the recorded
log-probabilities, as in `reinforce`; a response that is alone of its query has Â = 0.
"""

from __future__ import annotations

from torch import Tensor

from tba_hpc.config import RLOOConfig
from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.objectives.groups import leave_one_out
from tba_hpc.objectives.terms import policy_gradient, regularised_rewards


class RLOO(Objective):
    """The policy gradient of E[r] − β KL(π‖π_ref), on-policy without bias."""

    context_names = ("advantage",)
    metric_names = ("advantage", "log_ratio")
    """|Â| (reward units) and κ (nats)."""

    def __init__(self, config: RLOOConfig) -> None:
        """There is nothing to choose."""

    def group_context(self, logprobs: Tensor, inputs: LossInputs, beta: float) -> Tensor:
        return leave_one_out(regularised_rewards(inputs, beta), inputs.group_ids)[:, None]

    def loss(
        self, logprobs: Tensor, inputs: LossInputs, context: Tensor, beta: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (advantage,) = context.unbind(dim=-1)
        return policy_gradient(logprobs, inputs, advantage)
