"""Online DPO: the loss of Direct Preference Optimization (Rafailov et al., arXiv 2305.18290, equation 7) on responses
of the policy itself (Guo et al., arXiv 2402.04792), of which the best and the worst of K are the pair (Noukhovitch et
al., arXiv 2410.18252).

With κ = log π_θ(y|x) − log π_ref(y|x), a query has the loss

    ℓ = −log σ(β (κ_best − κ_worst)).

Both rows of the pair have half of it, K/2 · ℓ, the others 0, so that the mean over trajectories is the mean over
queries. The two may go through the model separately: the gradient of a row is K times the part of ∇ℓ that is its own,
∓K β σ(−β (κ_best − κ_worst)) ∇ log π_θ(y|x), with κ of both from the context.

Where it departs from the sources:

* the reward of the task says which is better, where they have a judge or a reward model;
* of several best or several worst responses one would have to be picked: ℓ is the mean over all pairs of a best and a
  worst one instead, which is what picking one at random gives on average. A query whose rewards are all equal has no
  pair, and no loss;
* the data may be of an earlier policy. DPO needs no importance weights, but its optimum is that of E[r] − β KL(π‖π_ref)
  only if preferences are drawn from the Bradley-Terry model of r, and here the better reward always wins: how far
  apart two rewards are makes no difference.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from tba_hpc.config import OnlineDPOConfig
from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.objectives.groups import Table
from tba_hpc.objectives.terms import log_ratio, sequence_logprob


class OnlineDPO(Objective):
    """Prefers the best responses of a query to its worst ones, whatever their distance in reward."""

    context_names = ("loss", "slope", "margin", "paired")
    """What of the loss is the row's, the derivative of the query's loss by its κ, and the two metrics."""
    metric_names = ("margin", "paired", "log_ratio")
    """The mean β (κ_best − κ_worst) over the pairs of a query, 1 if it has any, both spread over its rows so that means
    over trajectories are means over queries; and κ (nats)."""

    def __init__(self, config: OnlineDPOConfig) -> None:
        """There is nothing to choose."""

    def group_context(self, logprobs: Tensor, inputs: LossInputs, beta: float) -> Tensor:
        table = Table(inputs.group_ids)
        weights = _pair_weights(inputs.rewards, table)
        kappa = table.lay_out(log_ratio(logprobs, inputs).detach(), 0.0)
        margin = beta * (kappa[:, :, None] - kappa[:, None, :])
        slope = -beta * weights * torch.sigmoid(-margin)
        columns = (
            _halves(weights * softplus(-margin)),
            slope.sum(dim=2) - slope.sum(dim=1),
            _halves(weights * margin),
            _halves(weights),
        )
        return torch.stack([table.take_up(column) for column in columns], dim=-1)

    def loss(
        self, logprobs: Tensor, inputs: LossInputs, context: Tensor, beta: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        value, slope, margin, paired = context.unbind(dim=-1)
        log_policy = sequence_logprob(logprobs, inputs)
        metrics = {"margin": margin, "paired": paired, "log_ratio": log_ratio(logprobs, inputs).detach()}
        return value + slope * (log_policy - log_policy.detach()), metrics


def _pair_weights(rewards: Tensor, table: Table) -> Tensor:
    """`[G, K, K]`, for each query: K over the number of its pairs where the first is a best response and the second a
    worst, else 0."""
    high, low = table.lay_out(rewards, -torch.inf), table.lay_out(rewards, torch.inf)
    best, worst = high == high.amax(dim=1, keepdim=True), low == low.amin(dim=1, keepdim=True)
    pairs = best[:, :, None] & worst[:, None, :] & (high[:, :, None] > low[:, None, :])
    weights: Tensor = pairs * (table.sizes / pairs.sum(dim=(1, 2)).clamp(min=1))[:, None, None]
    return weights


def _halves(of_pairs: Tensor) -> Tensor:
    """What `[G, K, K]` amounts to for each row `[G, K]`, if both of a pair have half."""
    return (of_pairs.sum(dim=2) + of_pairs.sum(dim=1)) / 2
