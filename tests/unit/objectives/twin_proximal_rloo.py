"""Proximal RLOO, as the formulas stand."""

from __future__ import annotations

import math

from objective_cases import Array, Case
from twin_rloo import advantage
from twin_terms import clip_ratio, each_row, each_token, kappa, log_policy

Clip = tuple[float, float]


def ratio(case: Case, logprobs: Array, j: int) -> float:
    """ρ_j = π_θ(y_j|x) / π_behavior(y_j|x)"""
    return math.exp(log_policy(case, logprobs, j) - log_policy(case, case.behavior, j))


def is_clipped(case: Case, j: int, bounds: Clip) -> bool:
    """Whether the gradient is that of a constant: ρ is beyond the bound on the side that Â pushes to."""
    rho, a = ratio(case, case.logprobs, j), advantage(case, j)
    return (a > 0 and rho > 1 + bounds[1]) or (a < 0 and rho < 1 - bounds[0])


def loss(case: Case, logprobs: Array, clip: Clip = (0.2, 0.2)) -> Array:
    """−min(ρ_j Â_j, clip(ρ_j) Â_j)"""

    def of(j: int) -> float:
        rho, a = ratio(case, logprobs, j), advantage(case, j)
        return -min(rho * a, clip_ratio(rho, *clip) * a)

    return each_row(case, of)


def gradient(case: Case, clip: Clip = (0.2, 0.2)) -> Array:
    """−ρ_j Â_j ∇ log π_θ where ρ is free"""

    def of(j: int, t: int) -> float:
        return 0.0 if is_clipped(case, j, clip) else -ratio(case, case.logprobs, j) * advantage(case, j)

    return each_token(case, of)


def metrics(case: Case, clip: Clip = (0.2, 0.2)) -> dict[str, Array]:
    return {
        "advantage": each_row(case, lambda j: abs(advantage(case, j))),
        "log_ratio": each_row(case, lambda j: kappa(case, case.logprobs, j)),
        "importance_ratio": each_row(case, lambda j: ratio(case, case.logprobs, j)),
        "clip_fraction": each_row(case, lambda j: float(is_clipped(case, j, clip))),
    }
