"""Answers that are formulas, as in MATH: by their text, as exact numbers, and last by computer algebra."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Self

from tba_hpc.grading.algebra import Algebra, Reply
from tba_hpc.grading.comparison import Outcome, asks_for_words, compare, spelling
from tba_hpc.grading.extraction import ANNOUNCED, BOXED, TAGGED, locate, without_tags
from tba_hpc.grading.latex import normalise
from tba_hpc.grading.verdict import Verdict
from tba_hpc.settings import ConfigError

_PLACES = (BOXED, TAGGED, ANNOUNCED)
_START_SECONDS = 120.0
"""A worker that has not started by then, over the slowest of file systems, never will."""


class MathGrader:
    """Keeps a worker process for what needs algebra, from the first question on until `close`. For one thread at a
    time."""

    def __init__(self, seconds_per_answer: float = 5.0, seconds_per_batch: float = 60.0) -> None:
        """Bounds on algebra; an answer that takes more, or comes when a batch has taken more, is wrong. The start of
        a worker before a batch does not count."""
        self._seconds_per_answer, self._seconds_per_batch = seconds_per_answer, seconds_per_batch
        self._algebra = Algebra()

    def grade(self, responses: Sequence[str], answers: Sequence[str]) -> list[Verdict]:
        """One verdict a response; `answers[i]` is the right one. Raises `ConfigError` for an answer that is empty,
        `RuntimeError` if the worker cannot be started."""
        batch = _Batch(self._algebra, self._seconds_per_answer, self._seconds_per_batch)
        pairs = list(zip(responses, answers, strict=True))
        given = [final_answer(response, every_word=asks_for_words(answer)) for response, answer in pairs]
        return [_verdict(text, answer, batch) for text, answer in zip(given, answers, strict=True)]

    def close(self) -> None:
        """Ends the worker; grading again starts another."""
        self._algebra.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def final_answer(response: str, *, every_word: bool = False) -> str | None:
    r"""What the last `\boxed` holds; without any, `<answer>`; without that, what follows the last `answer is`.
    Normalised, with the words beside a formula if `every_word` counts; empty if it is blank, not closed or too long;
    None if a response has none."""
    located = locate(response, _PLACES)
    return None if located is None else normalise(without_tags(located[1]), every_word=every_word)


class _Batch:
    """Asks every question once, within the time of a batch."""

    def __init__(self, algebra: Algebra, seconds_per_answer: float, seconds: float) -> None:
        self._algebra, self._seconds_per_answer = algebra, seconds_per_answer
        self._seconds, self._left = seconds, seconds
        self._replies: dict[tuple[str, str], Reply] = {}

    def ask(self, given: str, right: str) -> Reply:
        if not self._replies and not self._algebra.ready(_START_SECONDS):
            raise RuntimeError(f"the grading worker was not ready after {_START_SECONDS:.0f} s")
        if (given, right) not in self._replies:
            started = time.monotonic()
            self._replies[given, right] = self._ask(given, right)
            self._left -= time.monotonic() - started
        return self._replies[given, right]

    def _ask(self, given: str, right: str) -> Reply:
        # Where an answer has cost the worker its life, the start of the next one is part of the batch.
        if self._left <= 0 or not self._algebra.ready(self._left):
            return Reply(False, f"not compared: the {self._seconds:.1f} s of the batch were over")
        return self._algebra.equal(given, right, min(self._left, self._seconds_per_answer))


def _verdict(given: str | None, answer: str, batch: _Batch) -> Verdict:
    if not answer.strip():
        raise ConfigError("the answer of a problem is empty; correct it in the data")
    if given is None:
        return Verdict(False, None, "no \\boxed{…} and no 'answer is'")
    if not given:
        return Verdict(False, None, "the answer is blank, too long, or its \\boxed{ is not closed")
    comparison = compare(given, answer)
    equal, why = comparison.outcome is Outcome.EQUAL, comparison.why
    if comparison.outcome is Outcome.ASK:
        reply = batch.ask(comparison.given, comparison.right)
        equal, why = reply.equal, reply.why
    return Verdict(equal, spelling(given), why)
