"""Sums over tokens and over groups for the twins, one trajectory and one token at a time, in float64.

A twin has `loss(case, logprobs)`, the loss of each trajectory at `logprobs`, where all that has no gradient is that of
`case.logprobs`; `gradient(case)`, the derivative of the summed losses at `case.logprobs`; and `metrics(case)`."""

from __future__ import annotations

import math

import numpy as np
from objective_cases import Array, Case


def tokens(case: Case, j: int) -> list[int]:
    return [t for t in range(case.mask.shape[1]) if case.mask[j, t]]


def log_policy(case: Case, logprobs: Array, j: int) -> float:
    """log π_θ(y_j|x)"""
    return math.fsum(logprobs[j, t] for t in tokens(case, j))


def kappa(case: Case, logprobs: Array, j: int) -> float:
    """κ_j = log π_θ(y_j|x) − log π_ref(y_j|x)"""
    return math.fsum(logprobs[j, t] - case.reference[j, t] for t in tokens(case, j))


def regularised_reward(case: Case, j: int) -> float:
    """r̃_j = r_j − β (log π_behavior(y_j|x) − log π_ref(y_j|x))"""
    return case.rewards[j] - case.beta * kappa(case, case.behavior, j)


def group(case: Case, j: int) -> list[int]:
    """The rows of the query that j is of."""
    return [i for i in range(len(case.rewards)) if case.group_ids[i] == case.group_ids[j]]


def clip_ratio(ratio: float, low: float, high: float) -> float:
    return min(max(ratio, 1 - low), 1 + high)


def k3(case: Case, logprobs: Array, j: int, t: int) -> float:
    """π_ref/π_θ − log(π_ref/π_θ) − 1"""
    log_inverse = case.reference[j, t] - logprobs[j, t]
    return math.exp(log_inverse) - log_inverse - 1


def each_row(case: Case, values) -> Array:
    """`values(j)` of every trajectory."""
    return np.array([values(j) for j in range(len(case.rewards))])


def each_token(case: Case, values) -> Array:
    """`values(j, t)` of every token, 0 at padding."""
    result = np.zeros(case.mask.shape)
    for j in range(len(case.rewards)):
        for t in tokens(case, j):
            result[j, t] = values(j, t)
    return result


def token_mean(case: Case, values) -> Array:
    """1/|y_j| Σ_t `values(j, t)`; 0 for an empty response"""
    return each_row(case, lambda j: math.fsum(values(j, t) for t in tokens(case, j)) / max(1, len(tokens(case, j))))
