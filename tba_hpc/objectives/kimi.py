"""The policy optimization of Kimi k1.5 (Kimi Team, arXiv 2501.12599, section 2.3.2).

Its squared loss (r − τ log Z − τ log(π_θ/π_ref))² is Trajectory Balance, but the mean reward r̄ of the K responses of
a query stands for τ log Z. The gradient that the paper gives, with κ = log π_θ(y|x) − log π_ref(y|x) and β = τ,

    (1/K) Σ_j [ (r_j − r̄) ∇ log π_θ(y_j|x) − (β/2) ∇ κ_j² ],

is minus that of the loss here, a trajectory's −(r_j − r̄) κ_j + (β/2) κ_j²: the squared loss divided by 2β, less a
constant. So the advantage is Â_j = (r_j − r̄) − β κ_j, where `tb_vargrad` has (r_j − r̄) − β (κ_j − κ̄). On fresh samples
κ̄ is a baseline: on average it changes the gradient of the KL term by a factor (K−1)/K, and nothing else. Off-policy it
changes the optimum, which is not the posterior π_ref · exp(r/β) / Z, since r̄ is not β log Z.

Where it departs from the source: the responses may be of any policy, where the paper samples from π_ref, which it moves
to the policy at each iteration (`reference.reset_every` does so every so many steps); the optimizer is not reset then;
the penalty on length and the sampling by difficulty are not part of the objective.
"""

from __future__ import annotations

from torch import Tensor

from tba_hpc.config import KimiConfig
from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.objectives.groups import centred
from tba_hpc.objectives.terms import log_ratio


class Kimi(Objective):
    """Trajectory Balance with the mean reward in the place of β log Z."""

    context_names = ("centred_reward",)
    metric_names = ("advantage", "log_ratio")
    """|Â| (reward units) and κ (nats)."""

    def __init__(self, config: KimiConfig) -> None:
        """There is nothing to choose."""

    def group_context(self, logprobs: Tensor, inputs: LossInputs, beta: float) -> Tensor:
        return centred(inputs.rewards, inputs.group_ids)[:, None]

    def loss(
        self, logprobs: Tensor, inputs: LossInputs, context: Tensor, beta: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (centred_reward,) = context.unbind(dim=-1)
        kappa = log_ratio(logprobs, inputs)
        advantage = centred_reward - beta * kappa.detach()
        loss = 0.5 * beta * kappa.square() - centred_reward * kappa
        return loss, {"advantage": advantage.abs(), "log_ratio": kappa.detach()}
