"""What can be said about two mathematical answers without computer algebra, and what algebra may be asked.

math-verify alone equates too much: it drops bases (52_8 and 52_9) and letter case (2k and 2K), rounds (1/3 and
0.333333, 0.0000001 and 0), takes 10:30 for the fraction 1/3, (1, 2) for {1, 2}, {1, 1} for {1}, words for products of
their letters (no and on), and any calculation for its result, so that copying the question is right."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from tba_hpc.grading.latex import is_wording, normalise
from tba_hpc.grading.numbers import spell_number
from tba_hpc.grading.quantities import parse_quantity

_NAME = re.compile(r"(?:\\?[a-zA-Z]+|[a-zA-Z]+_\w|[a-zA-Z]\\?\([a-zA-Z]\))'?|\\angle ?[A-Z]+")
_EQUALS = re.compile(r"(?<![<>:!\\])=")
_MULTIPLE = re.compile(r"-?\d+(?:\.\d+)?[a-zA-Z]")
_BASED = re.compile(r"(?P<digits>[0-9A-F]+)_(?:\{(?P<braced>\d+)\}|(?P<base>\d))")
_RELATION = re.compile(r"[<>]|\\(?:le|ge|ne|lt|gt)(?![a-zA-Z])")
_CALCULATION = re.compile(
    r"\\(?:a?(?:rc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|lg|exp|int|sum|prod|lim|binom|det|gcd|lcm|max|min|mod|pmod|bmod"
    r"|lfloor|lceil)(?![a-zA-Z])|!|\||\d\^\{?\d+\^"
)
_NOT_MATHEMATICS = re.compile(r"__|\*\*|[`\"@#]|\d_\d+_|\b0[xob]\d")
_HALF_OF_DAY = re.compile(r"\d ?([ap])m$")
_CHOICE = re.compile(r"\(([A-Z])\)")
_MEMBER = re.compile(r"\\in(?![a-zA-Z])\s*")
_PAIRS = {"(": ")", "[": "]"}
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.]|\\(?:overline|bar|dots|ldots))")


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
    text = answer if _is_equation(answer) and re.search("[a-zA-Z]", answer) else _value(answer)
    value = parse_quantity(text)
    return text if value is None else spell_number(value)


def compare(given: str, answer: str) -> Comparison:
    """A response's answer, normalised, and the right one as it is in the data."""
    right = normalise(answer)
    if given == right:
        return Comparison(Outcome.EQUAL, "the same text")
    if is_wording(answer):
        return _compare_words(given, right)
    if _is_equation(right) or (_name(right) and "=" in given and not _name(given)):
        return _ask(given, right) if "=" in given else _unequal("no equation")
    if (left := _name(given)) and (wanted := _name(right)) and left != wanted:
        return _unequal(f"about {left}, not {wanted}")
    if parse_quantity(_value(right)) is not None and _another_equation(given):
        return _unequal("an equation about something else")
    return _compare_values(_value(given), _value(right))


def _compare_values(given: str, right: str) -> Comparison:
    if given == right:
        return Comparison(Outcome.EQUAL, "the same text")
    halves = [_HALF_OF_DAY.search(text) for text in (given, right)]
    if halves[0] and halves[1] and halves[0][1] != halves[1][1]:
        return _unequal("the other half of the day")
    value, wanted = parse_quantity(given), parse_quantity(right)
    if wanted is not None:
        if value is None:
            return _unequal("not written as a number")
        return Comparison(Outcome.EQUAL, "the same number") if value == wanted else _unequal("another number")
    if based := _BASED.fullmatch(right):
        return _compare_in_base(given, based)
    if is_wording(given) or (value is not None and _letters(right)):
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
    if objection := _objection(given, right):
        return _unequal(objection)
    if _brackets(right) and _brackets(given):
        return _compare_elements(given, right)
    return Comparison(Outcome.ASK, given=_exact(given), right=_exact(right))


def _compare_elements(given: str, right: str) -> Comparison:
    """Of two points or intervals with the same brackets and number of elements."""
    elements = [_compare_values(*pair) for pair in zip(_split(given), _split(right), strict=True)]
    for element in elements:
        if element.outcome is Outcome.UNEQUAL:
            return element
    open_questions = [element for element in elements if element.outcome is Outcome.ASK]
    if not open_questions:
        return Comparison(Outcome.EQUAL, "the same elements")
    if len(open_questions) == 1:
        return open_questions[0]
    return Comparison(Outcome.ASK, given=_exact(given), right=_exact(right))


def _objection(given: str, right: str) -> str:
    """Why two formulas are not equal whatever algebra says; empty if there is no reason."""
    if _NOT_MATHEMATICS.search(given):
        return "not mathematics"
    if not _balanced(given):
        return "brackets that do not close"
    if ":" in given or ":" in right:
        return "another ratio or time"
    if _CALCULATION.search(given) and not _CALCULATION.search(right):
        return "a calculation that is not carried out"
    letters, wanted = _letters(given), _letters(right)
    if any(letter not in wanted and letter.swapcase() in wanted for letter in letters):
        return "letters in another case"
    if bool(_RELATION.search(given)) and not _RELATION.search(right) and _brackets(right) == "":
        return "an inequality"
    # ± may stand for two elements, a relation for an interval.
    if r"\pm" not in given + right and not _RELATION.search(given):
        if _brackets(given) != _brackets(right):
            return "other brackets"
        if _elements(given) != _elements(right):
            return "another number of elements"
    return ""


def _unequal(why: str) -> Comparison:
    return Comparison(Outcome.UNEQUAL, why)


def _sides(text: str) -> list[str]:
    """Of a chain of equations; of a list there is but one."""
    return [text] if "," in text else _EQUALS.split(text)


def _name(text: str) -> str:
    r"""What an answer says it is about: x of `x=5`, `x=2+3=5` and `x\in[0,1]`; empty if it does not say."""
    for pieces in (_sides(text), _MEMBER.split(text)):
        if len(pieces) > 1:
            return pieces[0] if _NAME.fullmatch(pieces[0]) else ""
    return ""


def _value(text: str) -> str:
    r"""What an answer says: 5 of `x=5`, of `2+3=5` and of `5\approx4.99`."""
    exact, _, rounded = text.partition(r"\approx")
    text = rounded if rounded and _NAME.fullmatch(exact.strip()) else exact
    pieces = _MEMBER.split(text)
    if len(pieces) == 2 and _NAME.fullmatch(pieces[0]):
        return pieces[1]
    return _sides(text)[-1].strip()


def _another_equation(text: str) -> bool:
    """Whether the last side is not what is asked for: `2x=14`, `5=7`."""
    *before, last = _sides(text)
    values = [value for side in before if (value := parse_quantity(side)) is not None]
    return any(map(_MULTIPLE.fullmatch, before)) or any(value != parse_quantity(last) for value in values)


def _is_equation(text: str) -> bool:
    return len(_sides(text)) > 1 and not _name(text)


def _letters_and_digits(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _letters(text: str) -> set[str]:
    return set(re.sub(r"\\[a-zA-Z]+|[^a-zA-Z]", "", text))


def _brackets(text: str) -> str:
    """The ones around all of a list, an interval or a point: `(]`; none around one element, or around a set."""
    inner = text[1:-1]
    if text[:1] not in _PAIRS or text[-1:] not in (")", "]") or _elements(text) < 2 or not _balanced(inner):
        return ""
    return text[0] + text[-1]


def _balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    return depth == 0


def _elements(text: str) -> int:
    return len(_split(text))


def _split(text: str) -> list[str]:
    """The elements of a list, of a set or between brackets."""
    text = text.removeprefix(r"\{").removesuffix(r"\}")
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and _balanced(text[1:-1]):
        text = text[1:-1]
    depth, elements, start = 0, [], 0
    for i, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            elements.append(text[start:i])
            start = i + 1
    return [*elements, text[start:]]


def _exact(text: str) -> str:
    """Decimals as fractions: algebra would round them."""
    return _DECIMAL.sub(lambda match: rf"\frac{{{match[1]}{match[2]}}}{{1{'0' * len(match[2])}}}", text)
