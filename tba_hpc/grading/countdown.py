"""Countdown: an expression that reaches the target, made of the given numbers, each used once.

The answer stands in the last `<answer>`, or else in the last `\\boxed{…}`, or behind the last "answer is" or "Answer:",
or in the last line; of several lines, in the last one that is more than marks; without a label ("Solution:"), a bullet
and a space before it, full stops, commas, semicolons at the end, bold, code and mathematics marks. A box that is never
closed holds no answer.

It is right if it is an expression (see `expression`) of exactly the given numbers, each as often as given, that is
worth the target. "expression = target" is right too; what follows an equals sign must be worth the target. All else is
wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tba_hpc.grading.expression import MAX_CHARACTERS, NotArithmeticError, parse
from tba_hpc.grading.extraction import ANNOUNCED, BOXED, LAST_LINE, TAGGED, last_box, locate
from tba_hpc.grading.lines import last_line
from tba_hpc.grading.verdict import Verdict

_PLACES = (TAGGED, BOXED, ANNOUNCED, LAST_LINE)
_LABEL = re.compile(
    r"(?P<mark>[*_]*)(?:the )?(?:final )?(?:answer|solution|expression|equation)(?P=mark)?"
    r"(?: is\b\s*:?|\s*:)(?P=mark)?\s*",
    re.IGNORECASE,
)
_BULLET = re.compile(r"[-*•]\s+(?=\S)")
_EQUALS = re.compile("==?|＝")
_MARKS = [("**", "**"), ("`", "`"), ("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")]


def grade_countdown(response: str, numbers: Sequence[int], target: int) -> Verdict:
    """Whether `response` reaches `target` with `numbers`. `extracted` is its expression without spaces and needless
    parentheses."""
    try:
        first, *others = [parse(_unwrapped(side)) for side in _EQUALS.split(_answer(response))]
    except NotArithmeticError as reason:
        return Verdict(False, None, str(reason))
    if Counter(first.numbers) != Counter(numbers):
        return Verdict(False, first.text, f"uses {_listed(first.numbers)} where {_listed(numbers)} are given")
    if first.value != target:
        return Verdict(False, first.text, f"is worth {first.value}, not {target}")
    for other in others:
        if other.value != target:
            return Verdict(False, first.text, f"says it is worth {other.value}; it is worth {target}")
    return Verdict(True, first.text, f"is worth {target}")


def _answer(response: str) -> str:
    """The part of `response` that is to be the answer. Raises `NotArithmeticError` where there is none."""
    located = locate(response, _PLACES)
    assert located is not None, "each text has a last line"
    _, found = located
    box = last_box(found)  # of a tag
    text = last_line(found if box is None else box)
    if not text:
        raise NotArithmeticError("no answer")
    if len(text) > MAX_CHARACTERS:
        raise NotArithmeticError(f"longer than {MAX_CHARACTERS} characters")
    return _unwrapped(_BULLET.sub("", text, count=1) if _BULLET.match(text) else text)


def _unwrapped(text: str) -> str:
    """`text` without what people write around an answer."""
    before = None
    while text != before:
        before = text
        text = text.strip().rstrip(".,;")
        for opening, closing in _MARKS:
            if len(text) >= len(opening + closing) and text.startswith(opening) and text.endswith(closing):
                text = text[len(opening) : len(text) - len(closing)]
        text = text[match.end() :] if (match := _LABEL.match(text)) else text
    return text


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "no number"
