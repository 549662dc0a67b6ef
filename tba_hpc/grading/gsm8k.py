"""Answers that are one number, as in GSM8K."""

from __future__ import annotations

import re
from fractions import Fraction

from tba_hpc.grading.equations import chain, is_about_something_else
from tba_hpc.grading.extraction import ANNOUNCED, BOXED, END, MARKED, TAGGED, locate, without_tags
from tba_hpc.grading.latex import LONGEST, readable
from tba_hpc.grading.numbers import parse_number, spell_number
from tba_hpc.grading.quantities import parse_quantity
from tba_hpc.grading.remarks import leading_words, without_parenthesis
from tba_hpc.grading.running_text import last_number
from tba_hpc.grading.verdict import Verdict
from tba_hpc.grading.words import RIVAL, spoil
from tba_hpc.settings import ConfigError

_PLACES = (MARKED, BOXED, TAGGED, ANNOUNCED, END)
_CALCULATOR = re.compile(r"<<[^<>]*>>")
_UNFINISHED = re.compile(r"!|\.\.|\\[lc]?dots")
"""In a box, 72! is a factorial, and 72... has more digits."""
_IN_BRACKETS = re.compile(r"\[([^][]*)\]")


def grade_number(response: str, answer: str) -> Verdict:
    """Whether the final answer of `response` is the number `answer`, exactly. Raises `ConfigError` for an `answer` that
    is no number."""
    right = parse_quantity(readable(answer))
    if right is None:
        raise ConfigError(f"the answer {answer[:80]!r} of a problem is not a number; correct it in the data")
    located = locate(response, _PLACES)
    assert located is not None, "each text has an end"
    place, found = located
    given = last_number(_tail(found)) if place is END else _only_number(found)
    if place is BOXED and _UNFINISHED.search(found):
        given = None
    if given is None:
        return Verdict(False, None, f"no number {place.where}")
    if given == right:
        return Verdict(True, spell_number(given), f"{_short(given)} {place.where}")
    return Verdict(False, spell_number(given), f"{_short(given)} {place.where} is not {_short(right)}")


def _only_number(text: str) -> Fraction | None:
    """The value of a text that holds one number, after words and equations that lead to it."""
    if (number := parse_number(text)) is not None:
        return number
    text = without_parenthesis(_trimmed(_clean(text)), _number_in_front)
    if "_" in text or is_about_something_else(chain(text)):
        return None  # a name in a program, or an equation that is not solved
    text = _trimmed(text.rpartition("=")[2])
    leading = leading_words(text)
    return None if spoil(leading) or RIVAL.search(leading) else _number_or_in_brackets(text.removeprefix(leading))


def _number_in_front(text: str) -> Fraction | None:
    """Behind words and equations."""
    side = text.rpartition("=")[2].strip()
    return parse_quantity(side.removeprefix(leading_words(side)))


def _trimmed(text: str) -> str:
    return text.strip().rstrip("!?.,;:").strip("\"'` ")


def _number_or_in_brackets(text: str) -> Fraction | None:
    """`[72]` is 72."""
    bracketed = _IN_BRACKETS.fullmatch(text)
    return parse_number(bracketed[1]) if bracketed else parse_quantity(text)


def _tail(text: str) -> str:
    """The end of all that is said, as far as it is looked at."""
    tail = text if len(text) <= LONGEST else text[-LONGEST:].partition(" ")[2]
    return without_parenthesis(_trimmed(_clean(tail)), last_number)


def _clean(text: str) -> str:
    return readable(_CALCULATOR.sub("", without_tags(text)))


def _short(value: Fraction) -> str:
    spelled = spell_number(value)
    return spelled if len(spelled) <= 40 else f"{spelled[:37]}..."
