"""Answers that are one number, as in GSM8K."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from tba_hpc.grading.extraction import last_announced, last_box, last_marked, last_tagged, spoken, without_tags
from tba_hpc.grading.latex import LONGEST, readable
from tba_hpc.grading.numbers import parse_number, spell_number
from tba_hpc.grading.quantities import multiplier, parse_quantity
from tba_hpc.grading.verdict import Verdict
from tba_hpc.settings import ConfigError

_PLACES: tuple[tuple[str, Callable[[str], str | None]], ...] = (
    ("behind ####", last_marked),
    ("in \\boxed", last_box),
    ("in <answer>", last_tagged),
    ("behind 'answer is'", last_announced),
)
_CALCULATOR = re.compile(r"<<[^<>]*>>")
_NEGATIVE = {"minus", "negative"}
_SPOILING = re.compile(r"not|half|twice|double|triple|than|(?:twen|thir|for|fif|six|seven|eigh|nine)ty")
"""Words before a number that make it another one."""
_LEADING_WORDS = re.compile(r"(?:[A-Za-z]+(?:'[a-z]+)?[\s:.,]+)*")


def grade_number(response: str, answer: str) -> Verdict:
    """Whether the final answer of `response` is the number `answer`, exactly. Raises `ConfigError` for an `answer` that
    is no number."""
    right = parse_quantity(readable(answer))
    if right is None:
        raise ConfigError(f"the answer {answer[:80]!r} of a problem is not a number; correct it in the data")
    place, given = _final_number(spoken(response))
    if given is None:
        return Verdict(False, None, f"no number {place}")
    if given == right:
        return Verdict(True, spell_number(given), f"{_short(given)} {place}")
    return Verdict(False, spell_number(given), f"{_short(given)} {place} is not {_short(right)}")


def _final_number(text: str) -> tuple[str, Fraction | None]:
    """In words where the final answer stands, and its value."""
    for place, find in _PLACES:
        found = find(text)
        if found is not None:
            return place, _only_number(found)
    return "at the end", _last_number(text)


def _only_number(text: str) -> Fraction | None:
    """The value of a text that holds one number, after words and equations that lead to it."""
    if (number := parse_number(text)) is not None:
        return number
    text = _clean(text).strip()
    if "_" in text:
        return None  # a name in a program
    text = _without_remark(text.rpartition("=")[2].strip().rstrip("!?").strip("\"'`"))
    leading = _LEADING_WORDS.match(text)
    assert leading is not None, "no words are some, too"
    number, before = parse_quantity(text[leading.end() :]), re.findall(r"[a-z']+", leading.group().lower())[-2:]
    if number is None or any(map(_SPOILING.fullmatch, before)):
        return None
    return -number if before and before[-1] in _NEGATIVE else number


def _without_remark(text: str) -> str:
    """Without words in parentheses behind a number: `20 (twenty)`."""
    number, opening, remark = text.rpartition(" (")
    return number if opening and remark.endswith(")") and re.search("[a-zA-Z]", remark) else text


def _last_number(text: str) -> Fraction | None:
    """The value of the last word that has a digit and does not begin with a letter; None if it is no number."""
    tail = text if len(text) <= LONGEST else text[-LONGEST:].partition(" ")[2]
    words = _clean(tail).split()
    for i in reversed(range(len(words))):
        word = words[i].rpartition("=")[2]
        if not re.search(r"\d", word) or re.match(r"\W*[A-Za-z_]", word.removeprefix("\\frac")):
            continue
        word = word.rstrip(".,;:!?*)").lstrip("(*")
        if "/" in word and i > 0 and words[i - 1].isdigit():
            word = f"{words[i - 1]} {word}"  # 1 1/2
        value = parse_quantity(word)
        following = words[i + 1].rstrip(".,;:!?") if i + 1 < len(words) else ""
        return None if value is None else value * multiplier(following)
    return None


def _clean(text: str) -> str:
    return readable(_CALCULATOR.sub("", without_tags(text)))


def _short(value: Fraction) -> str:
    spelled = spell_number(value)
    return spelled if len(spelled) <= 40 else f"{spelled[:37]}..."
