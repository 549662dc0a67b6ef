"""Equations in answers: their sides, what they are about, and what they say. Texts are `readable`."""

from __future__ import annotations

import re

from tba_hpc.grading.elements import elements
from tba_hpc.grading.numbers import parse_number

_LETTERS = r"\\?[a-zA-Z]+"
_NAME = re.compile(
    rf"(?:{_LETTERS}|[a-zA-Z]+_\w|[a-zA-Z]\\?\([a-zA-Z](?:,[a-zA-Z])*\))'?|\\angle ?[A-Z]+"
    rf"|\({_LETTERS}(?:,{_LETTERS})+\)"
)
_EQUALS = re.compile(r"(?<![<>:!\\])=")
_MEMBER = re.compile(r"\\in(?![a-zA-Z])\s*")
_MULTIPLE = re.compile(r"-?\d+(?:\.\d+)?\s*(?:(?:\*|\\cdot|\\times)\s*)?[a-zA-Z](?:\s*[+-]\s*\d+(?:\.\d+)?)?")
"""2x and 2x+3, which people solve for x."""


def sides(text: str) -> list[str]:
    """Of a chain of equations; of a list there is but one."""
    return [text] if len(elements(text)) > 1 else [side.strip() for side in _EQUALS.split(text)]


def name(text: str) -> str:
    r"""What an answer says it is about: x of `x=5`, `x=2+3=5` and `x\in[0,1]`; empty if it does not say."""
    for pieces in (sides(text), _MEMBER.split(text)):
        if len(pieces) > 1:
            return pieces[0] if _NAME.fullmatch(pieces[0]) else ""
    return ""


def value(text: str) -> str:
    r"""What an answer says: 5 of `x=5`, of `2+3=5` and of `5\approx4.99`."""
    exact, _, rounded = text.partition(r"\approx")
    text = rounded if rounded and _NAME.fullmatch(exact.strip()) else exact
    pieces = _MEMBER.split(text)
    if len(pieces) == 2 and _NAME.fullmatch(pieces[0]):
        return pieces[1]
    return sides(text)[-1].strip()


def is_equation(text: str) -> bool:
    """Whether it is one that does not say of something what it is: `x+y=3`."""
    return len(sides(text)) > 1 and not name(text)


def is_about_something_else(text: str) -> bool:
    """Whether a number on the last side is not what is asked for: `2x=14`, `5=7`."""
    *before, last = sides(text)
    numbers = [number for side in before if (number := parse_number(side)) is not None]
    return any(map(_MULTIPLE.fullmatch, before)) or any(number != parse_number(last) for number in numbers)
