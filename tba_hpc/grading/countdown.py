"""Countdown: an expression that reaches the target, made of the given numbers, each used once.

The answer is what stands within the last `<answer>…</answer>`, or where there are no such tags, in the whole response,
what was thought before a `</think>` left out: of that, the last `\\boxed{…}`, or else the last line that is not blank,
without a label ("Answer:"), a full stop at the end, bold, code and mathematics marks. Tags and boxes that are never
closed hold no answer.

It is right if it is an expression (see `expression`) of exactly the given numbers, each as often as given, that is
worth the target. "expression = target" is right too; what follows an equals sign must be worth the target. All else is
wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tba_hpc.grading.expression import MAX_CHARACTERS, NotArithmeticError, parse
from tba_hpc.grading.extraction import last_box, spoken
from tba_hpc.grading.verdict import Verdict

_OPEN, _CLOSE = "<answer>", "</answer>"
_LABEL = re.compile(r"(?:the )?(?:final )?(?:answer|solution|expression|equation)(?: is)?\s*:\s*", re.IGNORECASE)
_EQUALS = re.compile("[=＝]")
_MARKS = [("**", "**"), ("`", "`"), ("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")]


def grade_countdown(response: str, numbers: Sequence[int], target: int) -> Verdict:
    """Whether `response` reaches `target` with `numbers`. `extracted` is its expression without spaces and needless
    parentheses."""
    try:
        first, *others = [parse(side) for side in _EQUALS.split(_answer(response))]
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
    tagged = _last_tagged(spoken(response))
    box = last_box(tagged)
    text = (tagged if box is None else box).strip().rsplit("\n", 1)[-1]
    if not text:
        raise NotArithmeticError("no answer")
    if len(text) > MAX_CHARACTERS:
        raise NotArithmeticError(f"longer than {MAX_CHARACTERS} characters")
    return _unwrapped(text)


def _last_tagged(text: str) -> str:
    start = text.rfind(_OPEN)
    if start < 0:
        return text
    end = text.find(_CLOSE, start)
    if end < 0:
        raise NotArithmeticError(f"the last {_OPEN} is never closed")
    return text[start + len(_OPEN) : end]


def _unwrapped(text: str) -> str:
    """`text` without what people write around an answer."""
    before = None
    while text != before:
        before = text
        text = text.strip().removesuffix(".")
        text = text[match.end() :] if (match := _LABEL.match(text)) else text
        for opening, closing in _MARKS:
            if len(text) >= len(opening + closing) and text.startswith(opening) and text.endswith(closing):
                text = text[len(opening) : len(text) - len(closing)]
    return text


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "no number"
