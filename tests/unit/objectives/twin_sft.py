"""Supervised fine-tuning on trajectories, as the formulas stand."""

from __future__ import annotations

from objective_cases import Array, Case
from twin_terms import each_row, each_token, kappa, log_policy


def loss(case: Case, logprobs: Array, min_reward: float = float("-inf")) -> Array:
    """−log π_θ(y_j|x) where the reward is enough"""
    return each_row(case, lambda j: -log_policy(case, logprobs, j) if case.rewards[j] >= min_reward else 0.0)


def gradient(case: Case, min_reward: float = float("-inf")) -> Array:
    return each_token(case, lambda j, t: -1.0 if case.rewards[j] >= min_reward else 0.0)


def metrics(case: Case, min_reward: float = float("-inf")) -> dict[str, Array]:
    return {
        "kept": each_row(case, lambda j: float(case.rewards[j] >= min_reward)),
        "log_ratio": each_row(case, lambda j: kappa(case, case.logprobs, j)),
    }
