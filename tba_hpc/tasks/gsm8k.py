"""GSM8K: grade-school word problems whose answers are numbers (Cobbe et al. 2021, arXiv 2110.14168).

An example:

    question  Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many
              clips did Natalia sell altogether in April and May?
    answer    Natalia sold 48/2 = <<48/2=24>>24 clips in May.
              Natalia sold 48+24 = <<48+24=72>>72 clips altogether in April and May.
              #### 72

The default prompt and response are those of the supervised checkpoint that the published runs start from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from tba_hpc.grading.gsm8k import grade_number
from tba_hpc.settings import ConfigError
from tba_hpc.tasks.base import Score, Split
from tba_hpc.tasks.data_source import DataSource, Row, Table
from tba_hpc.tasks.dataset_task import DatasetOptions, DatasetTask, Problem
from tba_hpc.tasks.prompt_format import PromptFormat, default_format
from tba_hpc.trajectory import Prompt

_HUB = DataSource(path="openai/gsm8k", config="main")
_FORMAT = PromptFormat(template="[MATH_TASK] Problem:\n{question}\n\nSolution:", response="\n{solution}\n")
_MARK = "####"
_ANNOTATION = re.compile("<<.*?>>")


class Gsm8kOptions(DatasetOptions):
    """Data has the columns `question` and `answer`."""

    train: DataSource = _HUB
    test: DataSource = _HUB
    prompt: Annotated[PromptFormat, default_format(_FORMAT)] = _FORMAT
    calculator_annotations: bool = False
    """Keep the `<<48/2=24>>` of reference solutions."""


class Gsm8k(DatasetTask[Gsm8kOptions]):
    """Reward 1 for the right number, however it is written, else 0."""

    options_model = Gsm8kOptions

    def select(self, split: Split, table: Table) -> Sequence[int]:
        table.require("question", "answer")
        return range(len(table))

    def problem(self, row: Row) -> Problem:
        solution = row.text("answer")
        answer = _final(solution, row.where)
        if not self.options.calculator_annotations:
            solution = _ANNOTATION.sub("", solution)
        return Problem(row.text("question"), answer, solution)

    def score(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[Score]:
        pairs = zip(prompts, responses, strict=True)
        return [Score.of(grade_number(response, prompt.answer)) for prompt, response in pairs]

    def problem_of(self, record: Mapping[str, Any]) -> Prompt:
        """`record["answer"]` may be a whole reference solution."""
        prompt = super().problem_of(record)
        return replace(prompt, answer=_final(prompt.answer, "task Gsm8k"))


def _final(solution: str, where: str) -> str:
    """What stands behind the last `####`, or all of it where there is none. Raises `ConfigError` if that is no number:
    no response could be right."""
    answer = solution.rpartition(_MARK)[2].strip()
    try:
        grade_number("", answer)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return answer
