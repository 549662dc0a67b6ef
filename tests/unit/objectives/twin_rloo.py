"""REINFORCE Leave-One-Out, as the formulas stand."""

from __future__ import annotations

import numpy as np
from objective_cases import Array, Case
from twin_terms import each_row, each_token, group, kappa, log_policy, regularised_reward


def advantage(case: Case, j: int) -> float:
    """Â_j = r̃_j − 1/(K−1) Σ_{i≠j} r̃_i"""
    others = [regularised_reward(case, i) for i in group(case, j) if i != j]
    return regularised_reward(case, j) - float(np.mean(others)) if others else 0.0


def loss(case: Case, logprobs: Array) -> Array:
    """−Â_j log π_θ(y_j|x)"""
    return each_row(case, lambda j: -advantage(case, j) * log_policy(case, logprobs, j))


def gradient(case: Case) -> Array:
    return each_token(case, lambda j, t: -advantage(case, j))


def metrics(case: Case) -> dict[str, Array]:
    return {
        "advantage": each_row(case, lambda j: abs(advantage(case, j))),
        "log_ratio": each_row(case, lambda j: kappa(case, case.logprobs, j)),
    }
