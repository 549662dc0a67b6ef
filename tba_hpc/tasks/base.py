"""What a task is: prompts, rewards, and where there are any, reference answers to learn from first."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from transformers import PreTrainedTokenizerBase

from tba_hpc.grading.verdict import Verdict
from tba_hpc.settings import ConfigError, Settings, validate
from tba_hpc.trajectory import Prompt

Split = Literal["train", "test"]
Options = TypeVar("Options", bound=Settings)


@dataclass(frozen=True, slots=True)
class Score:
    """What a task thinks of one response."""

    reward: float
    """r(y; x)"""
    correct: bool
    """Whether it counts as right in an accuracy."""
    extracted: str | None = None
    """The answer that was read out of the response, in one spelling for all that are equal; None if there is none. A
    majority vote counts these."""
    why: str = ""
    """For people: what speaks for the reward."""

    @classmethod
    def of(cls, verdict: Verdict) -> Score:
        """Reward 1 for a right answer, else 0."""
        return cls(float(verdict.correct), verdict.correct, verdict.extracted, verdict.why)


class Task(ABC, Generic[Options]):
    """A set of prompts and a reward. Built on every rank, so building it must be cheap and need no model."""

    options_model: ClassVar[type[Settings]] = Settings
    """What the task can be told; nothing, unless a subclass says otherwise."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Raises `ConfigError` for an option that the task does not know."""
        self.options: Options = validate(  # type: ignore[assignment]
            self.options_model, options, f"options of task {type(self).__name__}", "task.options."
        )

    @abstractmethod
    def size(self, split: Split) -> int:
        """Number of prompts; their ids are 0 … size − 1."""

    @abstractmethod
    def prompt(self, split: Split, index: int) -> Prompt: ...

    @abstractmethod
    def score(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[Score]:
        """One score a response; `prompts[i]` is the prompt of `responses[i]`. Responses are untrusted text."""

    def checked_scores(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[Score]:
        """What `score` gives. Raises `ConfigError` if that is not a finite reward for each response."""
        scores: Any = self.score(prompts, responses)
        if not isinstance(scores, list) or not all(isinstance(score, Score) for score in scores):
            name = type(self).__name__
            raise ConfigError(f"score of task {name} has to return a list of Score; it returned {scores!r:.80}")
        if len(scores) != len(responses):
            raise ConfigError(f"task {type(self).__name__} scored {len(scores)} of {len(responses)} responses")
        for score in scores:
            if not math.isfinite(score.reward):
                raise ConfigError(f"task {type(self).__name__} gave the reward {score.reward}: it has to be finite")
        return scores

    def problem_of(self, record: Mapping[str, Any]) -> Prompt:
        """A problem as `score` needs it, from what a user has of it: `record["answer"]`, and whatever else the task
        asks for. Raises `ConfigError` for a record without it."""
        answer = record.get("answer")
        if not isinstance(answer, str | int | float) or isinstance(answer, bool):
            raise ConfigError(f'task {type(self).__name__} needs an "answer", a text or a number; it got {answer!r}')
        return Prompt(id=0, text=str(record.get("prompt", "")), answer=str(answer))

    def solution(self, prompt: Prompt) -> str:
        """The response that supervised fine-tuning imitates, without an end-of-sequence token."""
        raise ConfigError(
            f"task {type(self).__name__} has no reference solutions to fine-tune on: give it a method `solution`"
        )

    def new_tokenizer(self) -> PreTrainedTokenizerBase:
        """A tokenizer over the task's own vocabulary, for a model that starts from random weights."""
        raise ConfigError(
            f"task {type(self).__name__} has no vocabulary of its own: set model.path in place of init, or give the "
            "task a method `new_tokenizer`"
        )
