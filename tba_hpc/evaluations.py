"""Evaluations during training: each searcher answers its share of the held-out problems, and says in its headers how
that went. Here the shares are put together."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tba_hpc.accuracy import Accuracy

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Of the policy at one step, by all searchers."""

    step: int
    """Optimizer step whose weights it was asked for with."""
    accuracy: Accuracy
    late: int
    """Steps by which the newest weights that a searcher took were newer: one that is busy as weights arrive may have
    the next ones before it gets to evaluate. 0 in lockstep."""

    def to_json(self) -> dict[str, float]:
        low, high = self.accuracy.interval
        return {
            "accuracy": self.accuracy.share,
            "accuracy_low": low,
            "accuracy_high": high,
            "problems": self.accuracy.problems,
            "late": self.late,
        }


class Evaluations:
    """Goes by the headers of all searchers, round after round. One that some searcher passed over, as the next was due
    already, never becomes complete and is given up, with a warning."""

    def __init__(self) -> None:
        self._asked: list[int] = []
        self._parts: dict[int, dict[int, np.void]] = {}
        self._last = 0

    def ask(self, step: int) -> None:
        """Takes note that the searchers have been asked for one with the weights of optimizer step `step`."""
        self._asked.append(step)

    def give_up(self) -> None:
        """Warns of those that have not become complete, as the run ends."""
        for step in self._asked:
            logger.warning("the evaluation of step %d was not finished when the run ended", step)
        self._asked.clear()

    def update(self, headers: NDArray[np.void]) -> list[Evaluation]:
        """Those that are complete with `headers [n]` of `round.HEADER`, in the order of their steps."""
        for searcher, header in enumerate(headers):
            if (due := int(header["evaluation"])) > self._last:
                self._parts.setdefault(due, {})[searcher] = header.copy()
        complete = sorted(due for due, parts in self._parts.items() if len(parts) == len(headers))
        found = [_joined(due, list(self._parts[due].values())) for due in complete]
        if complete:
            self._last = complete[-1]
            for step in [step for step in self._asked if step < self._last and step not in complete]:
                logger.warning("the evaluation of step %d was passed over, as the next one was due already", step)
            self._asked = [step for step in self._asked if step > self._last]
            self._parts = {due: parts for due, parts in self._parts.items() if due > self._last}
        return found


def _joined(step: int, parts: list[np.void]) -> Evaluation:
    correct, problems = (sum(int(part[f"evaluation_{name}"]) for part in parts) for name in ("correct", "problems"))
    newest = max(int(part["evaluation_version"]) for part in parts)
    return Evaluation(step, Accuracy(correct, problems), newest - step)
