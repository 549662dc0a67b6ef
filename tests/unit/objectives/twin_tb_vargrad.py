"""VarGrad Trajectory Balance written out as the formulas stand, one trajectory and one token at a time, in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def kappa(logprobs: Array, reference_logprobs: Array, mask: NDArray[np.bool_], limit: float = np.inf) -> Array:
    """κ_j = Σ_t (log π_θ − log π_ref), each clamped to ± limit"""
    result = np.zeros(len(logprobs))
    for j in range(len(logprobs)):
        for t in range(logprobs.shape[1]):
            if mask[j, t]:
                result[j] += min(max(logprobs[j, t] - reference_logprobs[j, t], -limit), limit)
    return result


def importance_ratio(logprobs: Array, behavior_logprobs: Array, low: float, high: float) -> Array:
    """w_jt = clamp(π_θ / π_behavior, low, high)"""
    result = np.zeros(logprobs.shape)
    for j in range(len(logprobs)):
        for t in range(logprobs.shape[1]):
            result[j, t] = min(max(np.exp(logprobs[j, t] - behavior_logprobs[j, t]), low), high)
    return result


def mean_of_group(values: Array, group_ids: NDArray[np.int64], j: int) -> float:
    return float(np.mean([values[i] for i in range(len(values)) if group_ids[i] == group_ids[j]]))


def log_z(rewards: Array, kappas: Array, group_ids: NDArray[np.int64], beta: float) -> Array:
    """log Ẑ = mean_j [ r_j/β − κ_j ]"""
    return np.array([mean_of_group(rewards / beta - kappas, group_ids, j) for j in range(len(rewards))])


def residual(rewards: Array, kappas: Array, group_ids: NDArray[np.int64], beta: float) -> Array:
    """δ_j = log Ẑ + κ_j − r_j/β"""
    return log_z(rewards, kappas, group_ids, beta) + kappas - rewards / beta


def advantage(rewards: Array, kappas: Array, group_ids: NDArray[np.int64], beta: float) -> Array:
    """Â_j = (r_j − r̄) − β (κ_j − κ̄)"""
    result = np.zeros(len(rewards))
    for j in range(len(rewards)):
        r_bar, kappa_bar = mean_of_group(rewards, group_ids, j), mean_of_group(kappas, group_ids, j)
        result[j] = (rewards[j] - r_bar) - beta * (kappas[j] - kappa_bar)
    return result
