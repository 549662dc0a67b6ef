"""What a grader says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """On one response to one problem."""

    correct: bool
    extracted: str | None
    """The answer that was read out of the response, in one spelling for all that are equal; None if there is none."""
    why: str
    """For people, a few words: how it compares with the right answer, or what is wrong with the response."""
