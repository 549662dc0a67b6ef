"""Dr. GRPO, as the formulas stand."""

from __future__ import annotations

import math

import numpy as np
from objective_cases import Array, Case
from twin_grpo import Clip, token_gradient, token_loss, token_metrics
from twin_terms import each_row, each_token, group, tokens


def advantage(case: Case, j: int) -> float:
    """Â_j = r_j − mean_i r_i"""
    return float(case.rewards[j] - np.mean([case.rewards[i] for i in group(case, j)]))


def loss(case: Case, logprobs: Array, clip: Clip = (0.2, 0.2)) -> Array:
    """Σ_t"""

    def of(j: int) -> float:
        return math.fsum(token_loss(case, logprobs, j, t, advantage(case, j), clip) for t in tokens(case, j))

    return each_row(case, of)


def gradient(case: Case, clip: Clip = (0.2, 0.2)) -> Array:
    return each_token(case, lambda j, t: token_gradient(case, j, t, advantage(case, j), clip))


def metrics(case: Case, clip: Clip = (0.2, 0.2)) -> dict[str, Array]:
    return token_metrics(case, advantage, clip)
