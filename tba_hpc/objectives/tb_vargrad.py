"""Trajectory Balance with log Z estimated from the batch (VarGrad).

Trajectory Balance asks that log Z(x) + log π_θ(y|x) = log π_ref(y|x) + r(y;x)/β for all y, which makes π_θ the
posterior π_ref · exp(r/β) / Z. With κ = log π_θ(y|x) − log π_ref(y|x), VarGrad takes for log Z(x) the value that fits
the K trajectories of a query best, without a gradient (arXiv 2503.18929, equation 4):

    log Ẑ(x) = mean_j [ r_j/β − κ_j ],      residual  δ_j = log Ẑ(x) + κ_j − r_j/β.

The loss of a trajectory here is (β/2) δ². Because δ_j = −Â_j/β with Â_j = (r_j − r̄) − β (κ_j − κ̄), its gradient is
exactly −Â_j ∇ log π_θ(y_j|x): reward units, and so the same learning rate at any β. The paper's δ² has the gradient
−(2/β) Â_j ∇ log π_θ(y_j|x), and multiplied by β² it would still be off by a factor 2β.

Two settings of the TBA′ runs, both off by default, bound what single tokens can do to data far from the policy:

* `log_ratio_limit` c clamps each token's log π_θ − log π_ref to ±c before they are added up to κ;
* `importance_ratio` [a, b] weighs each token in the gradient, −Â_j Σ_t w_t ∇ log π_θ(y_jt), with the ratio of now to
  when it was sampled, w_t = clamp(π_θ(y_jt) / π_behavior(y_jt), a, b). The loss itself stays (β/2) δ².

With either, the optimum is no longer exactly the posterior.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tba_hpc.config import TBVarGradConfig
from tba_hpc.objectives.base import LossInputs, Objective
from tba_hpc.objectives.groups import group_mean
from tba_hpc.objectives.terms import masked


class TBVarGrad(Objective):
    """Off-policy without importance weights: the optimum is the posterior for any sampler with full support."""

    context_names = ("log_z",)
    metric_names = ("log_z", "residual", "log_ratio", "tb_loss")
    """log Ẑ (nats), |δ|·β (reward units), κ (nats; on-policy its mean is the KL divergence to π_ref), and δ²."""

    def __init__(self, config: TBVarGradConfig) -> None:
        self._limit = config.log_ratio_limit
        self._weights = config.importance_ratio

    def group_context(self, logprobs: Tensor, inputs: LossInputs, beta: float) -> Tensor:
        """log Ẑ of each row's query, `[N, 1]`."""
        with torch.no_grad():
            kappa = self._log_ratio(logprobs, inputs)
            return group_mean(inputs.rewards / _positive(beta) - kappa, inputs.group_ids)[:, None]

    def loss(
        self, logprobs: Tensor, inputs: LossInputs, context: Tensor, beta: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        (log_z,) = context.unbind(dim=-1)
        kappa = self._log_ratio(logprobs, inputs)
        delta = residual(kappa, inputs.rewards, log_z, _positive(beta))
        metrics = (log_z, delta.detach().abs() * beta, kappa.detach(), delta.detach().square())
        return regression_loss(delta, beta), dict(zip(self.metric_names, metrics, strict=True))

    def _log_ratio(self, logprobs: Tensor, inputs: LossInputs) -> Tensor:
        """κ = Σ_t (log π_θ − log π_ref) over the response, `[N]`, 0 for an empty one; within the limit, and with the
        gradient Σ_t w_t ∇ log π_θ."""
        policy = masked(logprobs, inputs.mask)
        now = policy.detach()
        value = now - masked(inputs.reference_logprobs, inputs.mask)
        if self._limit is not None:
            value = value.clamp(-self._limit, self._limit)
        change = policy - now  # zero, but for its gradient
        if self._weights is not None:
            behavior = masked(inputs.behavior_logprobs, inputs.mask)
            change = change * (now - behavior).exp().clamp(*self._weights)
        return (value + change).sum(dim=-1)


def residual(kappa: Tensor, rewards: Tensor, log_z: Tensor, beta: float) -> Tensor:
    """δ = log Ẑ + κ − r/β, `[N]`, in nats: 0 where the policy gives a response its share of the posterior."""
    return log_z + kappa - rewards / beta


def regression_loss(delta: Tensor, beta: float) -> Tensor:
    """(β/2) δ², `[N]`, in reward units times nats."""
    return 0.5 * beta * delta.square()


def _positive(beta: float) -> float:
    if not beta > 0:
        raise ValueError(f"β = {beta}: the posterior π_ref · exp(r/β) needs a β above 0; end objective.beta above 0")
    return beta
