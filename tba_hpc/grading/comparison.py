"""What can be said about two mathematical answers without computer algebra, and what algebra may be asked."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction

from tba_hpc.grading.elements import brackets, elements
from tba_hpc.grading.equations import is_about_something_else, is_equation, name, sides, value
from tba_hpc.grading.latex import is_wording, normalise
from tba_hpc.grading.numbers import decimals_as_fractions, spell_number
from tba_hpc.grading.objections import letters, objection
from tba_hpc.grading.quantities import parse_quantity

_BASED = re.compile(r"(?P<digits>[0-9A-F]+)_(?:\{(?P<braced>\d+)\}|(?P<base>\d))")
_HALF_OF_DAY = re.compile(r"\d ?([ap])m$")
_CHOICE = re.compile(r"\(([A-Z])\)")
_LETTER = re.compile(r"\(?[A-Z]\)?")
_CAPITALS = re.compile("[A-Z]{2,}")
"""A name, as of a segment: AB is not BA."""


class Outcome(Enum):
    EQUAL = auto()
    UNEQUAL = auto()
    ASK = auto()


@dataclass(frozen=True, slots=True)
class Comparison:
    outcome: Outcome
    why: str = ""
    given: str = ""
    right: str = ""
    """What is to be asked about, in LaTeX, exact: decimals are fractions."""


def spelling(answer: str) -> str:
    """A normalised answer, in one spelling for all that are equal as numbers or read the same."""
    if choice := _CHOICE.fullmatch(answer):
        return choice[1]
    text = answer if is_equation(answer) and re.search("[a-zA-Z]", answer) else value(answer)
    number = _number(text)
    return text if number is None else spell_number(number)


def asks_for_words(answer: str) -> bool:
    """Whether each word of a response counts: the right answer, as it is in the data, is words or a choice."""
    return is_wording(answer) or bool(_LETTER.fullmatch(answer.strip()))


def compare(given: str, answer: str) -> Comparison:
    """A response's answer, normalised, and the right one as it is in the data."""
    right = normalise(answer)
    if given == right:
        return Comparison(Outcome.EQUAL, "the same text")
    if is_wording(answer) and not _CAPITALS.fullmatch(right):
        return _compare_words(given, right)
    if is_equation(right) or _solves_for_another_name(given, right):
        return _ask(given, right) if len(sides(given)) == 2 else _unequal("no equation")
    if (left := name(given)) and (wanted := name(right)) and left != wanted:
        return _unequal(f"about {left}, not {wanted}")
    if is_about_something_else(sides(given)):
        return _unequal("an equation about something else")
    return _compare_values(value(given), value(right))


def _solves_for_another_name(given: str, right: str) -> bool:
    """Whether the right answer solves an equation for a name, and the given one for another or for none."""
    left, wanted = name(given), name(right)
    if not left:
        return bool(wanted) and "=" in given
    return left in letters(value(right)) and wanted in letters(value(given))


def _compare_values(given: str, right: str) -> Comparison:
    if given == right:
        return Comparison(Outcome.EQUAL, "the same text")
    halves = [_HALF_OF_DAY.search(text) for text in (given, right)]
    if halves[0] and halves[1] and halves[0][1] != halves[1][1]:
        return _unequal("the other half of the day")
    number, wanted = _number(given), _number(right)
    if wanted is not None:
        if number is None:
            return _unequal("not written as a number")
        return Comparison(Outcome.EQUAL, "the same number") if number == wanted else _unequal("another number")
    if _CAPITALS.fullmatch(right):
        return _unequal("another name")
    if based := _BASED.fullmatch(right):
        return _compare_in_base(given, based)
    if is_wording(given) or (number is not None and letters(right)):
        return _unequal("not a formula")
    return _ask(given, right)


def _compare_words(given: str, right: str) -> Comparison:
    same = _letters_and_digits(given) == _letters_and_digits(right) != ""
    return Comparison(Outcome.EQUAL, "the same words") if same else _unequal("other words")


def _compare_in_base(given: str, right: re.Match[str]) -> Comparison:
    """Digits without a base are taken to be in the one that is asked for."""
    based = _BASED.fullmatch(given)
    if (based["digits"] if based else given) != right["digits"]:
        return _unequal("other digits")
    if based and (based["base"] or based["braced"]) != (right["base"] or right["braced"]):
        return _unequal("another base")
    return Comparison(Outcome.EQUAL, "the same digits in the base asked for")


def _ask(given: str, right: str) -> Comparison:
    if why := objection(given, right):
        return _unequal(why)
    if brackets(right) and brackets(right) == brackets(given) and len(elements(right)) == len(elements(given)):
        return _compare_elements(given, right)
    numbers = [[_number(element) for element in elements(text)] for text in (given, right)]
    if None not in numbers[0] + numbers[1]:
        same = Counter(numbers[0]) == Counter(numbers[1])
        return Comparison(Outcome.EQUAL, "the same numbers") if same else _unequal("other numbers")
    return Comparison(Outcome.ASK, given=_for_algebra(given), right=_for_algebra(right))


def _compare_elements(given: str, right: str) -> Comparison:
    """Of two points or intervals with the same brackets and number of elements."""
    pairs = zip(elements(given), elements(right), strict=True)
    comparisons = [_compare_values(*pair) for pair in pairs]
    for comparison in comparisons:
        if comparison.outcome is Outcome.UNEQUAL:
            return comparison
    open_questions = [comparison for comparison in comparisons if comparison.outcome is Outcome.ASK]
    if not open_questions:
        return Comparison(Outcome.EQUAL, "the same elements")
    if len(open_questions) == 1:
        return open_questions[0]
    return Comparison(Outcome.ASK, given=_for_algebra(given), right=_for_algebra(right))


def _unequal(why: str) -> Comparison:
    return Comparison(Outcome.UNEQUAL, why)


def _number(text: str) -> Fraction | None:
    """Of a normalised text, in which commas separate elements, never digits."""
    return None if re.search(r"\d,\d", text) else parse_quantity(text)


def _letters_and_digits(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _for_algebra(text: str) -> str:
    """With decimals that algebra would round as fractions, and without commas that it would take for separators."""
    return decimals_as_fractions(text).replace(",", ", ")
