"""How good a policy is, as a share of problems, and how sure that is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Z_95 = 1.959964
"""Standard errors in half a 95 % interval."""

_ROUNDING = 1e-12
"""A variance below this share of the largest possible one is none."""

Vote = tuple[str | None, bool]
"""The answer that was read out of a response, None if there is none, and whether the response is right."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How many of how many problems were answered right."""

    correct: int
    problems: int

    @property
    def share(self) -> float:
        return self.correct / self.problems

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the share, 95 %, for the choice of problems."""
        return wilson_interval(self.correct, self.problems)


@dataclass(frozen=True, slots=True)
class MeanShare:
    """The mean over problems of what is, for each of them, a share or a probability."""

    share: float
    interval: tuple[float, float]
    """95 %, for the choice of problems."""
    problems: int

    @classmethod
    def of(cls, values: Sequence[float]) -> MeanShare:
        """`values [N]` in 0 … 1, one a problem, at least one.

        The interval is Wilson's, with as many trials as 0/1 values would need for the standard error that these have:
        N · p(1 − p)/s². For 0/1 values that is Wilson's own. Values without any spread are taken for 0/1 values, as
        they do not tell how sure their mean is."""
        n = len(values)
        share = math.fsum(values) / n
        variance = math.fsum((value - share) ** 2 for value in values) / n
        most = share * (1 - share)
        trials = n * most / variance if variance > _ROUNDING * most else n
        return cls(share, wilson_interval(share * trials, trials), n)


def wilson_interval(successes: float, trials: float, z: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval of a proportion; `z` standard errors wide (95 % by default). Unlike the plain normal
    interval it stays within [0, 1] and keeps its coverage near the ends. Needs at least one trial."""
    share = successes / trials
    scale = 1 + z**2 / trials
    centre = (share + z**2 / (2 * trials)) / scale
    half_width = z / scale * math.sqrt(max(share * (1 - share), 0.0) / trials + z**2 / (4 * trials**2))
    return max(centre - half_width, 0.0), min(centre + half_width, 1.0)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Probability that at least one of `k` responses drawn from `n` without replacement is right, if `correct` of the
    `n` are: 1 − C(n − c, k) / C(n, k), the unbiased estimate of pass@k for 1 ≤ k ≤ n (arXiv:2107.03374)."""
    return 1 - math.comb(n - correct, k) / math.comb(n, k)


def majority_at_k(votes: Sequence[Vote], k: int) -> float:
    """Share of the groups of `k` among the `votes [N]` on a problem whose majority is right: the first k, the next k,
    and so on, without what is left over. Samples are independent, so this is an unbiased estimate of maj@k for
    1 ≤ k ≤ N."""
    groups = [votes[start : start + k] for start in range(0, len(votes) - k + 1, k)]
    return sum(map(majority_is_right, groups)) / len(groups)


def majority_is_right(votes: Sequence[Vote]) -> bool:
    """Whether the answer that most responses gave is right. Of several that equally many gave, the one that came up
    first counts; no answer (None) counts only where no response has one. Needs at least one vote."""
    counts = Counter(answer for answer, _ in votes if answer is not None)
    winner = max(counts, key=counts.__getitem__) if counts else None  # the first of several: counted in that order
    return next(right for answer, right in votes if answer == winner)
