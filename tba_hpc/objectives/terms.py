"""What the losses are made of. Tokens outside of the mask count for nothing, whatever stands there."""

from __future__ import annotations

import torch
from torch import Tensor

from tba_hpc.config import ClipRange
from tba_hpc.objectives.base import LossInputs

LARGEST_LOG_RATIO = 20.0
"""Nats. The exponential of a larger log-ratio is e²⁰, half a thousand million, without a gradient: it must not become
infinite."""


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """`values [N, R]` with 0 at padding, which gets no gradient."""
    return torch.where(mask, values, 0.0)


def sequence_logprob(logprobs: Tensor, inputs: LossInputs) -> Tensor:
    """log π_θ(y|x), `[N]`; 0 for an empty response."""
    return masked(logprobs, inputs.mask).sum(dim=-1)


def log_ratio(logprobs: Tensor, inputs: LossInputs) -> Tensor:
    """κ = log π_θ(y|x) − log π_ref(y|x), `[N]`, in nats. On-policy its mean is KL(π_θ‖π_ref)."""
    return masked(logprobs - inputs.reference_logprobs, inputs.mask).sum(dim=-1)


def regularised_rewards(inputs: LossInputs, beta: float) -> Tensor:
    """r̃ = r − β κ, `[N]`, with κ = log π_behavior(y|x) − log π_ref(y|x) of the policy that sampled: a reward is found
    once, when a response is. Its mean on-policy is E[r] − β KL(π_θ‖π_ref)."""
    return inputs.rewards - beta * log_ratio(inputs.behavior_logprobs, inputs)


def policy_gradient(logprobs: Tensor, inputs: LossInputs, advantage: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """−Â log π_θ(y|x), `[N]`, for a detached `advantage [N]`, and the metrics |Â| and κ, `[N]`."""
    metrics = {"advantage": advantage.abs(), "log_ratio": log_ratio(logprobs, inputs).detach()}
    return -advantage * sequence_logprob(logprobs, inputs), metrics


def token_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values [N, R]` over the tokens of each response, `[N]`; 0 for an empty response."""
    return masked(values, mask).sum(dim=-1) / mask.sum(dim=-1).clamp(min=1)


def importance_ratio(log_policy: Tensor, log_behavior: Tensor) -> Tensor:
    """π_θ / π_behavior, of tokens or of whole responses."""
    return (log_policy - log_behavior).clamp(max=LARGEST_LOG_RATIO).exp()


def clipped(ratio: Tensor, advantage: Tensor, clip: ClipRange) -> tuple[Tensor, Tensor]:
    """min(ρ Â, clip(ρ, 1 − ε_low, 1 + ε_high) Â), and whether the second is less, so that there is no gradient
    (arXiv 1707.06347, equation 7)."""
    low, high = clip
    free, bounded = ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage
    return torch.minimum(free, bounded), bounded < free


def reference_kl(logprobs: Tensor, inputs: LossInputs) -> Tensor:
    """Schulman's estimator k3 = π_ref/π_θ − log(π_ref/π_θ) − 1 of each token, `[N, R]`, never below 0. Its mean over
    tokens sampled from π_θ is KL(π_θ‖π_ref); what the mean of its gradient is, `grpo` says."""
    difference = masked(inputs.reference_logprobs - logprobs, inputs.mask)
    return difference.clamp(max=LARGEST_LOG_RATIO).exp() - difference - 1


def clipped_token_losses(
    logprobs: Tensor, inputs: LossInputs, advantage: Tensor, clip: ClipRange, beta: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """−min(ρ_t Â, clip(ρ_t) Â) + β k3_t of each token, `[N, R]`, 0 at padding, and metrics `[N]`: |Â|, κ, ρ_t and the
    share of clipped tokens as means over the response, and the sum of k3."""
    ratio = importance_ratio(masked(logprobs, inputs.mask), masked(inputs.behavior_logprobs, inputs.mask))
    surrogate, is_clipped = clipped(ratio, advantage[:, None], clip)
    kl = reference_kl(logprobs, inputs)
    metrics = {
        "advantage": advantage.abs(),
        "log_ratio": log_ratio(logprobs, inputs).detach(),
        "importance_ratio": token_mean(ratio.detach(), inputs.mask),
        "clip_fraction": token_mean(is_clipped.float(), inputs.mask),
        "kl": kl.detach().sum(dim=-1),
    }
    return masked(beta * kl - surrogate, inputs.mask), metrics
