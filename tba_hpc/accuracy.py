"""How good a policy is, as a share of problems, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass


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


def wilson_interval(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's score interval of a proportion; `z` standard errors wide (95 % by default). Unlike the plain normal
    interval it stays within [0, 1] and keeps its coverage near the ends. Needs at least one trial."""
    share = successes / trials
    scale = 1 + z**2 / trials
    centre = (share + z**2 / (2 * trials)) / scale
    half_width = z / scale * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    return max(centre - half_width, 0.0), min(centre + half_width, 1.0)
