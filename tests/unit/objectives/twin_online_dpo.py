"""Online DPO, as the formulas stand: the loss of a query is of both rows of its pair together."""

from __future__ import annotations

import math

from objective_cases import Array, Case
from twin_terms import each_row, each_token, group, kappa


def pairs(case: Case, j: int) -> list[tuple[int, int]]:
    """All rows with the best reward of j's query, each with all that have the worst, if the two differ."""
    rows = group(case, j)
    best, worst = max(case.rewards[i] for i in rows), min(case.rewards[i] for i in rows)
    if best == worst:
        return []
    return [(b, w) for b in rows for w in rows if case.rewards[b] == best and case.rewards[w] == worst]


def margin(case: Case, logprobs: Array, best: int, worst: int) -> float:
    """β (κ_best − κ_worst)"""
    return case.beta * (kappa(case, logprobs, best) - kappa(case, logprobs, worst))


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def half_of_pairs(case: Case, of_pair) -> Array:
    """K/2 times the mean of `of_pair(best, worst)` over the pairs of the query, to each row the pairs it is in"""

    def of(j: int) -> float:
        mine = [of_pair(*pair) for pair in pairs(case, j) if j in pair]
        return len(group(case, j)) / 2 * math.fsum(mine) / len(pairs(case, j)) if mine else 0.0

    return each_row(case, of)


def loss(case: Case, logprobs: Array) -> Array:
    """−log σ(β (κ_best − κ_worst))"""
    return half_of_pairs(case, lambda b, w: -math.log(sigmoid(margin(case, logprobs, b, w))))


def gradient(case: Case) -> Array:
    """∓K β σ(−β (κ_best − κ_worst)) for best and worst, the mean over pairs"""

    def of(j: int, t: int) -> float:
        mine = [
            (-1 if j == b else 1) * case.beta * sigmoid(-margin(case, case.logprobs, b, w))
            for b, w in pairs(case, j)
            if j in (b, w)
        ]
        return len(group(case, j)) * math.fsum(mine) / len(pairs(case, j)) if mine else 0.0

    return each_token(case, of)


def metrics(case: Case) -> dict[str, Array]:
    return {
        "margin": half_of_pairs(case, lambda b, w: margin(case, case.logprobs, b, w)),
        "paired": half_of_pairs(case, lambda b, w: 1.0),
        "log_ratio": each_row(case, lambda j: kappa(case, case.logprobs, j)),
    }
