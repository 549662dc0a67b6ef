"""GRPO, as the formulas stand."""

from __future__ import annotations

import math

import numpy as np
from objective_cases import Array, Case
from twin_terms import clip_ratio, each_row, each_token, group, k3, kappa, token_mean, tokens

Clip = tuple[float, float]


def advantage(case: Case, j: int) -> float:
    """Â_j = (r_j − mean_i r_i) / (std_i r_i + 10⁻⁴)"""
    rewards = [case.rewards[i] for i in group(case, j)]
    deviation = float(np.std(rewards, ddof=1)) if len(rewards) > 1 else 0.0
    return float(case.rewards[j] - np.mean(rewards)) / (deviation + 1e-4)


def ratio(case: Case, logprobs: Array, j: int, t: int) -> float:
    """ρ_jt = π_θ(y_jt) / π_behavior(y_jt)"""
    return math.exp(logprobs[j, t] - case.behavior[j, t])


def is_clipped(case: Case, j: int, t: int, a: float, bounds: Clip) -> bool:
    rho = ratio(case, case.logprobs, j, t)
    return (a > 0 and rho > 1 + bounds[1]) or (a < 0 and rho < 1 - bounds[0])


def token_loss(case: Case, logprobs: Array, j: int, t: int, a: float, bounds: Clip) -> float:
    """−min(ρ_jt Â_j, clip(ρ_jt) Â_j) + β k3_jt"""
    rho = ratio(case, logprobs, j, t)
    return -min(rho * a, clip_ratio(rho, *bounds) * a) + case.beta * k3(case, logprobs, j, t)


def token_gradient(case: Case, j: int, t: int, a: float, bounds: Clip) -> float:
    """−ρ_jt Â_j where ρ is free, + β (1 − π_ref/π_θ)"""
    pushed = 0.0 if is_clipped(case, j, t, a, bounds) else ratio(case, case.logprobs, j, t) * a
    return -pushed + case.beta * (1 - math.exp(case.reference[j, t] - case.logprobs[j, t]))


def loss(case: Case, logprobs: Array, clip: Clip = (0.2, 0.2)) -> Array:
    """1/|y_j| Σ_t"""
    return token_mean(case, lambda j, t: token_loss(case, logprobs, j, t, advantage(case, j), clip))


def gradient(case: Case, clip: Clip = (0.2, 0.2)) -> Array:
    return each_token(case, lambda j, t: token_gradient(case, j, t, advantage(case, j), clip) / len(tokens(case, j)))


def metrics(case: Case, clip: Clip = (0.2, 0.2)) -> dict[str, Array]:
    return token_metrics(case, advantage, clip)


def token_metrics(case: Case, advantage_of, bounds: Clip) -> dict[str, Array]:
    return {
        "advantage": each_row(case, lambda j: abs(advantage_of(case, j))),
        "log_ratio": each_row(case, lambda j: kappa(case, case.logprobs, j)),
        "importance_ratio": token_mean(case, lambda j, t: ratio(case, case.logprobs, j, t)),
        "clip_fraction": token_mean(case, lambda j, t: float(is_clipped(case, j, t, advantage_of(case, j), bounds))),
        "kl": each_row(case, lambda j: math.fsum(k3(case, case.logprobs, j, t) for t in tokens(case, j))),
    }
