"""What tasks have in common whose problems are rows of a data set."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from tba_hpc.settings import ConfigError, Settings
from tba_hpc.tasks.base import Split, Task
from tba_hpc.tasks.data_source import DataSource, Row, Table
from tba_hpc.tasks.prompt_format import Example, PromptFormat
from tba_hpc.trajectory import Prompt


class DatasetOptions(Settings):
    train: DataSource
    """Problems to learn from."""
    test: DataSource
    """Problems to evaluate on."""
    prompt: PromptFormat = PromptFormat()
    """How a problem becomes a prompt."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a row says."""

    question: str
    answer: str
    """The right answer alone."""
    solution: str | None = None
    """The way to it and the answer, as a response; None where the data has none."""


DataOptions = TypeVar("DataOptions", bound=DatasetOptions)


class DatasetTask(Task[DataOptions]):
    """A split is loaded when it is first asked for: grading needs none. Both loading it and asking for a problem raise
    `ConfigError` for data that is not as the task needs it."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._splits: dict[Split, tuple[Table, Sequence[int]]] = {}

    @abstractmethod
    def problem(self, row: Row) -> Problem:
        """The problem in a row. Raises `ConfigError` for a row that is not right."""

    @abstractmethod
    def select(self, split: Split, table: Table) -> Sequence[int]:
        """Which rows of the split's table are the task's problems, in order. Raises `ConfigError` for a table without a
        column that the task needs."""

    def size(self, split: Split) -> int:
        return len(self._split(split)[1])

    def prompt(self, split: Split, index: int) -> Prompt:
        problem = self.problem(self._row(split, index))
        return self.options.prompt.prompt(index, problem.question, problem.answer, self._shots(split, index))

    def solution(self, prompt: Prompt) -> str:
        """Of a training prompt. Raises `ConfigError` if the data has none."""
        row = self._row("train", prompt.id)
        return self.options.prompt.wrapped(self._example(row).solution)

    def _split(self, split: Split) -> tuple[Table, Sequence[int]]:
        if split not in self._splits:
            source: DataSource = getattr(self.options, split)
            table = source.load(split)
            rows = self.select(split, table)
            if len(rows) == 0:
                raise ConfigError(f"{table.name}: the task's options leave none of its {len(table)} rows")
            self._splits[split] = table, rows
        return self._splits[split]

    def _row(self, split: Split, index: int) -> Row:
        table, rows = self._split(split)
        return table[rows[index]]

    def _shots(self, split: Split, index: int) -> Sequence[Example]:
        """The first training problems, but not the one that is asked."""
        n = self.options.prompt.shots
        if n == 0:
            return ()
        return [e for i, e in enumerate(self._first_examples) if (split, i) != ("train", index)][:n]

    @cached_property
    def _first_examples(self) -> tuple[Example, ...]:
        """One more than there are shots."""
        needed = self.options.prompt.shots + 1
        if self.size("train") < needed:
            raise ConfigError(
                f"task.options.prompt.shots = {needed - 1} needs {needed} training problems, but there are "
                f"{self.size('train')}"
            )
        return tuple(self._example(self._row("train", i)) for i in range(needed))

    def _example(self, row: Row) -> Example:
        problem = self.problem(row)
        if problem.solution is None:
            raise ConfigError(f"{row.where} has no solution to learn from")
        return Example(question=problem.question, solution=problem.solution)
