r"""MATH: competition problems whose answers are formulas (Hendrycks et al. 2021, arXiv 2103.03874), with the 500 test
problems of Lightman et al. (2023, arXiv 2305.20050) to evaluate on.

An example:

    problem   If $f(x) = \frac{3x-2}{x-2}$, what is the value of $f(-2) +f(-1)+f(0)$? Express your answer as a common
              fraction.
    solution  $f(-2)+f(-1)+f(0)=\frac{3(-2)-2}{-2-2}+\frac{3(-1)-2}{-1-2}+\frac{3(0)-2}{0-2}=\frac{-8}{-4}+
              \frac{-5}{-3}+\frac{-2}{-2}=2+\frac{5}{3}+1=\boxed{\frac{14}{3}}$
    answer    \frac{14}{3}
    level     3

The default prompt is the conversation that Qwen's models for mathematics are asked with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, PositiveFloat

from tba_hpc.grading.extraction import last_box
from tba_hpc.grading.mathematics import MathGrader
from tba_hpc.settings import ConfigError, PositiveInt
from tba_hpc.tasks.base import Score, Split
from tba_hpc.tasks.data_source import DataSource, Row, Table
from tba_hpc.tasks.dataset_task import DatasetOptions, DatasetTask, Problem
from tba_hpc.tasks.prompt_format import PromptFormat, default_format
from tba_hpc.trajectory import Prompt

_FORMAT = PromptFormat(chat=True, system="Please reason step by step, and put your final answer within \\boxed{}.")
_LEVEL = re.compile(r"(?:Level )?([1-5])")


class MathOptions(DatasetOptions):
    """Data has the columns `problem`, and `answer` or `solution`; `level` where `levels` is given."""

    train: DataSource = DataSource(path="DigitalLearningGmbH/MATH-lighteval")
    """All 7,500 training problems."""
    test: DataSource = DataSource(path="HuggingFaceH4/MATH-500")
    prompt: Annotated[PromptFormat, default_format(_FORMAT)] = _FORMAT
    levels: frozenset[Annotated[int, Field(strict=True, ge=1, le=5)]] | None = Field(None, min_length=1)
    """Difficulties of the training problems to learn from, 1 (easy) to 5; all when not given. Those of unknown
    difficulty are then left out."""
    max_problem_characters: PositiveInt | None = None
    """Longer training problems are left out."""
    seconds_per_answer: PositiveFloat = 5.0
    """Longest that algebra on a response may take; past it the response counts as wrong."""
    seconds_per_batch: PositiveFloat = 60.0
    """Longest that algebra on all responses that are scored together may take; what is left then counts as wrong."""


class HendrycksMath(DatasetTask[MathOptions]):
    """Reward 1 for the right formula, however it is written, else 0."""

    options_model = MathOptions

    def select(self, split: Split, table: Table) -> Sequence[int]:
        table.require("problem")
        if "answer" not in table.columns:
            table.require("solution")
        if split == "test":
            return range(len(table))
        levels, longest = self.options.levels, self.options.max_problem_characters
        if levels is not None:
            table.require("level")
        if levels is None and longest is None:
            return range(len(table))
        rows = ((i, table[i]) for i in range(len(table)))
        return [i for i, row in rows if _fits(row, levels, longest)]

    def problem(self, row: Row) -> Problem:
        solution = row.text("solution") if row.has("solution") else None
        if row.has("answer"):
            answer = row.text("answer")
        else:
            answer = last_box(row.text("solution")) or ""
            if not answer.strip():
                raise ConfigError(f"{row.where} has no answer, and its solution no \\boxed{{…}}")
        return Problem(row.text("problem"), answer, solution)

    def score(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[Score]:
        verdicts = self._grader.grade(responses, [prompt.answer for prompt in prompts])
        return [Score.of(verdict) for verdict in verdicts]

    def problem_of(self, record: Mapping[str, Any]) -> Prompt:
        r"""`record["answer"]` may be a whole reference solution, of which the last `\boxed` counts."""
        prompt = super().problem_of(record)
        answer = last_box(prompt.answer)
        answer = prompt.answer if answer is None else answer
        if not answer.strip():
            raise ConfigError(f"task HendrycksMath needs an answer; it got {prompt.answer!r}")
        return replace(prompt, answer=answer)

    @cached_property
    def _grader(self) -> MathGrader:
        return MathGrader(self.options.seconds_per_answer, self.options.seconds_per_batch)


def _fits(row: Row, levels: frozenset[int] | None, longest: int | None) -> bool:
    if longest is not None and len(row.text("problem")) > longest:
        return False
    return levels is None or _level(row) in levels


def _level(row: Row) -> int | None:
    """Written `3` or `Level 3`; None for any other text, as `Level ?`."""
    match = _LEVEL.fullmatch(row.text("level")) if row.has("level") else None
    return int(match[1]) if match else None
