"""Equations in answers: their sides, what they are about, and what they say. Texts are `readable`."""

from __future__ import annotations

import re

from tba_hpc.grading.elements import elements
from tba_hpc.grading.words import RIVAL, SHORT_UNITS
from tba_hpc.grading.worth import worth

_COMMAND = r"\\(?!(?:sqrt|[dtc]?frac|pi|times|cdot|div|pm|int|sum|prod|binom)(?![a-zA-Z]))[a-zA-Z]+"
_INDEX = r"(?:_(?:\{[^{}]*\}|\\?\w))?"
_ARGUMENT = r"\\?[(\[][^=]*[)\]]"
_NAME = re.compile(
    rf"(?:[a-zA-Z]+|{_COMMAND}){_INDEX}'*"  # x, AB, a_5, \theta, y'
    rf"|(?:m ?)?\\(?:angle|triangle|overline|vec|hat|bar|widehat|overrightarrow) ?(?:\{{[^{{}}]*\}}|[a-zA-Z]+)"
    r"|\\?\|[^|=]*\|"  # |z|
    rf"|{_COMMAND}{_INDEX}(?:\^\{{?-?\d\}}?)? ?(?:{_ARGUMENT}|\\?\w+)"  # \sin A
    r"|\((?:\\?[a-zA-Z]+)(?:,\\?[a-zA-Z]+)+\)"  # (x,y)
    r"|\[[A-Z]{3,}\]"  # an area
)
_APPLICATION = re.compile(
    rf"(?P<head>\(\w ?\\circ ?\w\)|[a-zA-Z]{_INDEX}(?:\^\{{?\(?-?\d\)?\}}?)?'*)(?P<of>{_ARGUMENT})"
)
_VARIABLES = frozenset("abcdkmntxyz")
"""Letters before a sum in parentheses that are factors, not functions."""
_EQUALS = re.compile(r"(?<![<>:!\\])=+")
_MEMBER = re.compile(r"\\in(?![a-zA-Z])\s*")
_WORDS = re.compile(
    r"(?<![\\a-zA-Z\d_^'])(?:[a-zA-Z]{3,}(?:'[a-z]+)?"
    r"|(?i:of|is|in|to|at|by|on|so|it|he|we|an|my|as|be)|I|[aA](?= [a-zA-Z]{2}))"
    rf"(?![a-zA-Z(_^])|(?<=\d)(?=[a-zA-Z]{{2}})(?:{SHORT_UNITS})(?![a-zA-Z(_^])"
)
_TWO_NUMBERS = re.compile(r"\d[^\w,;]*[,;](?!\d{3})")
_FREE = re.compile(r"\\[a-zA-Z]+|(?<=[\d)} ])[xX](?=\s*[\d(\\$.])|(?P<free>[a-zA-Z])")
_CONSTANTS = ("i", "e")
_SAME = 1e-9
"""Relative."""


def sides(text: str) -> list[str]:
    """Of a chain of equations; of a list there is but one."""
    return [text] if len(elements(text)) > 1 else chain(text)


def chain(text: str) -> list[str]:
    """What stands between equals signs."""
    return [side.strip() for side in _EQUALS.split(text)]


def name(text: str) -> str:
    r"""What an answer says it is about: x of `x=5`, `x=2+3=5` and `x\in[0,1]`; empty if it does not say."""
    for pieces in (sides(text), _MEMBER.split(text)):
        if len(pieces) > 1:
            return pieces[0] if _is_name(pieces[0]) else ""
    return ""


def value(text: str) -> str:
    r"""What an answer says: 5 of `x=5`, of `2+3=5` and of `5\approx4.99`."""
    exact, _, rounded = text.partition(r"\approx")
    text = rounded if rounded and _is_name(exact.strip()) else exact
    pieces = _MEMBER.split(text)
    if len(pieces) == 2 and _is_name(pieces[0]):
        return pieces[1]
    return sides(text)[-1].strip()


def is_equation(text: str) -> bool:
    """Whether it is one that does not say of something what it is: `x+y=3`."""
    return len(sides(text)) > 1 and not name(text)


def is_about_something_else(pieces: list[str]) -> bool:
    r"""Whether the last side of a chain is not what is asked for: `2x=14`, `5=7`, `x=5, y=7`. A side before it may be a
    name, an application such as `f(2)`, words, or a calculation of numbers that is worth the last one."""
    *before, last = pieces
    last = last.partition(r"\approx")[0]
    return not all(_leads_to(side, last, first=i == 0) for i, side in enumerate(before))


def _leads_to(side: str, last: str, *, first: bool) -> bool:
    side = side.strip(" :,")
    if RIVAL.search(side) or _TWO_NUMBERS.search(side) or (not first and re.search(r"\band\b", side)):
        return False
    bare = _WORDS.sub("", side).strip(" .:,'\"")
    if not bare or any(map(_is_name, (side, bare, bare.strip("() ")))):
        return True
    if has_variables(bare):
        return False
    return bare != side or _are_close(worth(bare), _WORDS.sub("", last).strip())


def _are_close(number: float | None, text: str) -> bool:
    """Whether a number is what a text says, as far as its decimals go, or as can be found out."""
    if number is None:
        return True
    if (other := worth(text)) is None:
        return not any(match["free"] for match in _FREE.finditer(text))
    places = len(text.partition(".")[2]) if re.fullmatch(r"-?[\d,]*\.\d+", text) else 0
    rounding = 0.51 * 10**-places if places else 0.0
    return abs(number - other) <= max(rounding, _SAME * max(abs(number), abs(other), 1.0))


def has_variables(text: str) -> bool:
    """Whether there are letters in it beside words; those for constants are none, nor is an x between factors."""
    letters = [match["free"] for match in _FREE.finditer(_WORDS.sub("", text))]
    return any(letter and letter not in _CONSTANTS for letter in letters)


def _is_name(text: str) -> bool:
    if _NAME.fullmatch(text):
        return True
    application = _APPLICATION.fullmatch(text)
    if application is None:
        return False
    head, of = application["head"][0], application["of"]
    return not (head in of or (head in _VARIABLES and re.search(r"[-+]", of)))
