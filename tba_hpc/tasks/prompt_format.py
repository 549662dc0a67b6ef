"""How a problem becomes the prompt of the model that a task is meant for: plain text or a conversation, with worked
examples in front or without.

Templates are filled by replacing one placeholder and in no other way: braces, as LaTeX has them, stay as they are, in
templates and in questions alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from tba_hpc.settings import Integer, Settings
from tba_hpc.trajectory import Message, Prompt

_QUESTION, _SOLUTION = "{question}", "{solution}"


class Example(Settings):
    """A worked example."""

    question: str
    solution: str


class PromptFormat(Settings):
    chat: bool = False
    """Whether prompts are conversations, which the tokenizer's chat template turns into text."""
    system: str | None = None
    """What a conversation begins with."""
    template: str = _QUESTION
    """The prompt, or the user's turn; `{question}` stands for the question."""
    response: str = _SOLUTION
    """The response of an example and of supervised fine-tuning, or the assistant's turn; `{solution}` stands for the
    solution. Whitespace counts: it is what the policy learns to write first."""
    examples: tuple[Example, ...] = ()
    """Worked examples put in front of every question, in a conversation as turns of their own."""
    shots: Integer = Field(0, ge=0)
    """Or so many of the first training problems, none of which is then an example for itself."""
    separator: str = "\n\n"
    """Between examples in a plain prompt."""

    @field_validator("system")
    @classmethod
    def _only_in_a_chat(cls, system: str | None, info: ValidationInfo) -> str | None:
        if system is not None and not info.data.get("chat", True):
            raise ValueError("only conversations have a system message: set chat, or put it into template")
        return system

    @field_validator("template")
    @classmethod
    def _has_question(cls, template: str) -> str:
        return _with_placeholder(template, _QUESTION)

    @field_validator("response")
    @classmethod
    def _has_solution(cls, response: str) -> str:
        return _with_placeholder(response, _SOLUTION)

    @field_validator("shots")
    @classmethod
    def _one_kind_of_examples(cls, shots: int, info: ValidationInfo) -> int:
        if shots and info.data.get("examples"):
            raise ValueError("there are examples, too: give one of them")
        return shots

    def prompt(self, index: int, question: str, answer: str, shots: Sequence[Example] = ()) -> Prompt:
        """The prompt of one question behind the configured examples and `shots`. A conversation's `text` is its last
        turn: for people."""
        examples, last = [*self.examples, *shots], self.template.replace(_QUESTION, question)
        turns = [(self.template.replace(_QUESTION, e.question), self.wrapped(e.solution)) for e in examples]
        if not self.chat:
            text = "".join(user + assistant + self.separator for user, assistant in turns) + last
            return Prompt(id=index, text=text, answer=answer)
        messages = [] if self.system is None else [Message("system", self.system)]
        for user, assistant in turns:
            messages += [Message("user", user), Message("assistant", assistant)]
        return Prompt(id=index, text=last, answer=answer, messages=(*messages, Message("user", last)))

    def wrapped(self, solution: str) -> str:
        """A solution as the policy is to write it."""
        return self.response.replace(_SOLUTION, solution)


def default_format(default: PromptFormat) -> BeforeValidator:
    """What a configuration leaves out is taken from `default`, unless one is a conversation and the other is not: the
    words of one would not fit the other."""

    def fill(values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("chat", default.chat) != default.chat:
            return values
        return {**default.model_dump(), **values}

    return BeforeValidator(fill)


def _with_placeholder(template: str, placeholder: str) -> str:
    if placeholder not in template:
        raise ValueError(f"{placeholder} is missing")
    return template
