"""What the records of an evaluation add up to, without keeping them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tba_hpc.accuracy import Accuracy, MeanShare, Vote, majority_at_k, pass_at_k
from tba_hpc.evaluator import EvaluationRecord, GradedResponse


@dataclass(frozen=True, slots=True)
class Summary:
    accuracy: Accuracy
    """Of the greedy responses."""
    mean_response_length: float
    """Tokens of a greedy response."""
    finished_fraction: float
    """Share of the greedy responses that ended before they were cut at the token limit."""
    pass_at: dict[int, MeanShare]
    """pass@k by k; empty where nothing was sampled."""
    majority_at: dict[int, MeanShare]
    """maj@k by k; empty where no response has an answer that the task could read out, and so none to vote for."""

    def to_json(self) -> dict[str, object]:
        return {
            "problems": self.accuracy.problems,
            "accuracy": self.accuracy.share,
            "interval": self.accuracy.interval,
            "mean_response_tokens": self.mean_response_length,
            "finished_fraction": self.finished_fraction,
            "pass_at_k": {str(k): _share_json(share) for k, share in self.pass_at.items()},
            "majority_at_k": {str(k): _share_json(share) for k, share in self.majority_at.items()},
        }

    def lines(self) -> list[str]:
        """For people."""
        low, high = self.accuracy.interval
        sampled = [("pass", self.pass_at), ("maj", self.majority_at)]
        return [
            f"{self.accuracy.share:.1%} of {self.accuracy.problems} problems right, greedily (95% interval {low:.1%} "
            f"to {high:.1%}); {self.mean_response_length:.1f} tokens a response, {self.finished_fraction:.1%} finished",
            *(f"{name}@{k}: {_describe(share)}" for name, shares in sampled for k, share in shares.items()),
        ]


class Tally:
    """Counts records as they come; keeps a few numbers of each problem."""

    def __init__(self, ks: Sequence[int] = ()) -> None:
        """`ks`: of pass@k and maj@k; each problem has at least as many samples as the largest."""
        self._ks = ks
        self._problems = self._correct = self._tokens = self._finished = 0
        self._pass: dict[int, list[float]] = {k: [] for k in ks}
        self._majority: dict[int, list[float]] = {k: [] for k in ks}
        self._can_vote = False

    def add(self, record: EvaluationRecord) -> None:
        self._problems += 1
        self._correct += record.greedy.correct
        self._tokens += record.greedy.tokens
        self._finished += record.greedy.finished
        votes = [_vote(sample) for sample in record.samples]
        self._can_vote |= any(answer is not None for answer, _ in votes)
        for k in self._ks:
            self._pass[k].append(pass_at_k(len(votes), sum(right for _, right in votes), k))
            self._majority[k].append(majority_at_k(votes, k))

    @property
    def accuracy(self) -> Accuracy:
        """Greedy, so far."""
        return Accuracy(self._correct, self._problems)

    def summary(self) -> Summary:
        """Needs at least one record."""
        return Summary(
            accuracy=self.accuracy,
            mean_response_length=self._tokens / self._problems,
            finished_fraction=self._finished / self._problems,
            pass_at={k: MeanShare.of(values) for k, values in self._pass.items()},
            majority_at={k: MeanShare.of(values) for k, values in self._majority.items()} if self._can_vote else {},
        )


def _vote(response: GradedResponse) -> Vote:
    return response.extracted, response.correct


def _share_json(share: MeanShare) -> dict[str, object]:
    return {"share": share.share, "interval": share.interval}


def _describe(share: MeanShare) -> str:
    low, high = share.interval
    return f"{share.share:.1%} (95% interval {low:.1%} to {high:.1%})"
