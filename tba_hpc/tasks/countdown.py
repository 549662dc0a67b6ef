"""Countdown: reach a target with the given numbers, each used once, and + - * /.

An example, as a tiny model reads it (`compact`), and the same in words:

    prompt    3 5 7=26:
    response  3*7+5

    question  Using the numbers [3, 5, 7], create an equation that equals 26. …
    response  … <answer>3*7+5</answer>

Problems are drawn at random, or come from data with the columns `nums` and `target`, as Jiayi-Pan/Countdown-Tasks-3to4
on the hub has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Annotated, Any

from pydantic import Field, model_validator
from transformers import PreTrainedTokenizerBase

from tba_hpc.grading.countdown import grade_countdown
from tba_hpc.settings import ConfigError, Settings
from tba_hpc.tasks.base import Score, Split, Task
from tba_hpc.tasks.characters import character_tokenizer
from tba_hpc.tasks.countdown_problems import MOST_NUMBERS, DrawnProblems, Problem, draw, solution
from tba_hpc.tasks.data_source import DataSource, Row, Table
from tba_hpc.tasks.prompt_format import PromptFormat, default_format
from tba_hpc.trajectory import Prompt

CHARACTERS = "0123456789+-*/()= :"
QUESTION = (
    "Using the numbers {numbers}, create an equation that equals {target}. You can use basic arithmetic operations "
    "(+, -, *, /) and each number can only be used once. Show your work in <think> </think> tags. And return the final "
    "answer in <answer> </answer> tags, for example <answer> (1 + 2) / 3 </answer>."
)
"""That of TinyZero, https://github.com/Jiayi-Pan/TinyZero."""
_FORMAT = PromptFormat(
    template="A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The "
    "assistant first thinks about the reasoning process in the mind and then provides the user with the answer.\n"
    "User: {question}\nAssistant: Let me solve this step by step.\n<think>",
    response="\n{solution}\n</think>\n<answer>{solution}</answer>",
)


class CountdownOptions(Settings):
    drawn: DrawnProblems = DrawnProblems()
    """The problems, unless there are data."""
    train: DataSource | None = None
    """Data to learn from."""
    test: DataSource | None = None
    """Data to evaluate on; the published data set has one split only: `train[:1000]` and `train[1000:]` divide it."""
    compact: bool = False
    """Numbers and target alone for a prompt: the language of models that start from random weights."""
    prompt: Annotated[PromptFormat, default_format(_FORMAT)] = _FORMAT
    """How a question in words becomes a prompt; without a conversation, that of TinyZero for base models."""
    lost_signs: float = Field(0.0, ge=0, le=1)
    """Share of the reference solutions that have a + for every -: demonstrations, as people write them, have mistakes.
    Rewards are always right."""

    @model_validator(mode="after")
    def _consistent(self) -> CountdownOptions:
        if (self.train is None) != (self.test is None):
            raise ValueError("give both train and test, or neither for problems that are drawn")
        if self.train is not None and "drawn" in self.model_fields_set:
            raise ValueError("there are data (train and test), so no problems are drawn: leave drawn out")
        if self.compact and "prompt" in self.model_fields_set:
            raise ValueError("prompt is the format of questions in words: leave out either prompt or compact")
        if self.prompt.shots:
            raise ValueError("prompt.shots is not supported: write examples into prompt.examples")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class CountdownPrompt(Prompt):
    """`answer` is the target as text."""

    numbers: tuple[int, ...]
    target: int


class Countdown(Task[CountdownOptions]):
    """Reward 1 for an expression that reaches the target, else 0. Problems are drawn, or data loaded, when they are
    first asked for; both raise `ConfigError`."""

    options_model = CountdownOptions

    def size(self, split: Split) -> int:
        return len(self._problems[split])

    def prompt(self, split: Split, index: int) -> Prompt:
        problem = self._problems[split][index]
        return self._prompt(index, _from_row(problem) if isinstance(problem, Row) else problem)

    def score(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[Score]:
        pairs = zip(prompts, responses, strict=True)
        return [Score.of(grade_countdown(response, *_problem(prompt))) for prompt, response in pairs]

    def problem_of(self, record: Mapping[str, Any]) -> Prompt:
        """From `numbers` (or `nums`, as data calls them), a list of whole numbers, and `target`, a whole number."""
        numbers, target = record.get("numbers", record.get("nums")), record.get("target")
        return self._prompt(0, _checked(numbers, target, 'task Countdown needs "numbers" and "target"'))

    def solution(self, prompt: Prompt) -> str:
        problem = _problem(prompt)
        if len(problem[0]) > MOST_NUMBERS:
            raise ConfigError(f"solutions are searched for up to {MOST_NUMBERS} numbers, not for {prompt.text!r}")
        found = solution(problem)
        if found is None:
            raise ConfigError(f"the numbers {list(problem[0])} cannot reach {problem[1]}")
        # Seeded by the problem: which demonstrations have mistakes does not depend on what others there are.
        if Random(repr(problem)).random() < self.options.lost_signs:
            found = found.replace("-", "+")
        return found if self.options.compact else self.options.prompt.wrapped(found)

    def new_tokenizer(self) -> PreTrainedTokenizerBase:
        """Raises `ConfigError` unless prompts are compact."""
        if not self.options.compact:
            raise ConfigError("task.options.compact = false: a model that starts from random weights has no words")
        return character_tokenizer(CHARACTERS)

    @cached_property
    def _problems(self) -> dict[Split, Sequence[Problem] | Table]:
        options = self.options
        if options.train is None or options.test is None:
            train, test = draw(options.drawn)
            return {"train": train, "test": test}
        tables: dict[Split, Table] = {"train": options.train.load("train"), "test": options.test.load("test")}
        for table in tables.values():
            table.require("nums", "target")
        return {**tables}

    def _prompt(self, index: int, problem: Problem) -> CountdownPrompt:
        numbers, target = problem
        if self.options.compact:
            plain = Prompt(index, f"{' '.join(map(str, numbers))}={target}:", str(target))
        else:
            question = QUESTION.format(numbers=list(numbers), target=target)
            plain = self.options.prompt.prompt(index, question, str(target))
        return CountdownPrompt(
            id=plain.id,
            text=plain.text,
            answer=plain.answer,
            messages=plain.messages,
            numbers=numbers,
            target=target,
        )


def _problem(prompt: Prompt) -> Problem:
    assert isinstance(prompt, CountdownPrompt), "prompts are those of this task"
    return prompt.numbers, prompt.target


def _from_row(row: Row) -> Problem:
    return _checked(row.values["nums"], row.values["target"], f"{row.where}: nums and target are needed")


def _checked(numbers: Any, target: Any, where: str) -> Problem:
    """Raises `ConfigError` unless `numbers` is a list of whole numbers ≥ 0, not empty, and `target` a whole number."""
    whole = isinstance(numbers, list) and all(type(number) is int for number in [*numbers, target])
    if whole and numbers and min(numbers) >= 0:
        return tuple(numbers), target
    raise ConfigError(f"{where}, a list of whole numbers ≥ 0 and a whole number; it got {numbers!r} and {target!r}")
