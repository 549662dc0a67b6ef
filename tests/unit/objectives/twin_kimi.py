"""The policy optimization of Kimi k1.5, as the formulas stand."""

from __future__ import annotations

import numpy as np
from objective_cases import Array, Case
from twin_terms import each_row, each_token, group, kappa


def centred_reward(case: Case, j: int) -> float:
    """r_j − r̄"""
    return float(case.rewards[j] - np.mean([case.rewards[i] for i in group(case, j)]))


def advantage(case: Case, j: int) -> float:
    """Â_j = (r_j − r̄) − β κ_j"""
    return centred_reward(case, j) - case.beta * kappa(case, case.logprobs, j)


def loss(case: Case, logprobs: Array) -> Array:
    """−(r_j − r̄) κ_j + (β/2) κ_j²"""

    def of(j: int) -> float:
        k = kappa(case, logprobs, j)
        return -centred_reward(case, j) * k + case.beta / 2 * k**2

    return each_row(case, of)


def gradient(case: Case) -> Array:
    return each_token(case, lambda j, t: -advantage(case, j))


def metrics(case: Case) -> dict[str, Array]:
    return {
        "advantage": each_row(case, lambda j: abs(advantage(case, j))),
        "log_ratio": each_row(case, lambda j: kappa(case, case.logprobs, j)),
    }
