"""What people add to an answer, to leave it out: reasons behind it, and remarks in parentheses. What may hold a second
answer stays where it is, and leaves no answer that can be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from tba_hpc.grading.expression import NotArithmeticError, parse
from tba_hpc.grading.numbers import decimals_as_fractions
from tba_hpc.grading.quantities import parse_quantity
from tba_hpc.grading.words import RIVAL

_ANSWERS = re.compile(r"[\d$\\]")
_CLAUSE = re.compile(
    r"[\s,](?:(?P<compares>as\s+(?:\w+\s+as|many|much|is|are))|because|since|as|when|which|where|after"
    r"|(?P<concludes>so)|given|due to)\b|;(?=\s+[a-z]{2,}[^\d=$\\]*\Z)",
    re.IGNORECASE,
)
_LEADING_WORDS = re.compile(r"(?:[A-Za-z]+(?:'[a-z]+)?[\s:.,]+)*")
_DANGLING = re.compile(r"\b(?:and|or|nor|to|than|not)$", re.IGNORECASE)


def without_clause(sentence: str) -> str:
    """A sentence's beginning up to a word like `because`, if there is an answer before it."""
    start = _ANSWERS.search(sentence)
    clause = None if start is None else _CLAUSE.search(sentence, start.end())
    if clause is None:
        return sentence
    answer, remark = sentence[: clause.start()].rstrip(" ,"), sentence[clause.start() :]
    goes_on = clause["compares"] or (clause["concludes"] and re.search(r"\d", remark))
    return sentence if goes_on or _DANGLING.search(answer) or RIVAL.search(remark) else answer


def without_parenthesis(text: str, read: Callable[[str], Fraction | None]) -> str:
    """Without words in parentheses behind a number, or the same number in another form: `20 (twenty)`, `72 (3 x 24)`.
    `text` is `readable`; `read` says which number stands before the parenthesis."""
    opening = _opening(text)
    if opening < 1 or text[opening - 1] != " ":
        return text
    before = text[:opening].rstrip()
    number = read(before)
    return text if number is None or not _is_remark(text[opening + 1 : -1], number) else before


def leading_words(text: str) -> str:
    """The beginning of `text` that is words alone, up to the number behind them."""
    match = _LEADING_WORDS.match(text)
    assert match is not None, "no words are some, too"
    return match.group()


def _opening(text: str) -> int:
    """Where the parenthesis opens that closes at the end; -1 if none does."""
    depth = 0
    for i in reversed(range(len(text) if text.endswith(")") else 0)):
        depth += (text[i] == ")") - (text[i] == "(")
        if depth == 0:
            return i
    return -1


def _is_remark(text: str, number: Fraction) -> bool:
    """Whether it says nothing about the number, or nothing else."""
    values = [_worth(side) for side in text.split("=")]
    if RIVAL.search(text) or any(value not in (None, number) for value in values):
        return False
    has_letter = re.search("[a-wyz]", re.sub(r"\\[a-z]+", "", text.lower()))  # x is a sign
    return bool(has_letter) or None not in values


def _worth(text: str) -> Fraction | None:
    """Of a quantity or a calculation; None of anything else."""
    if (value := parse_quantity(text)) is not None:
        return value
    try:
        return parse(decimals_as_fractions(text.replace(",", ""))).value
    except NotArithmeticError:
        return None
