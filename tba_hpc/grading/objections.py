"""Why two formulas are not equal, whatever math-verify says.

Alone it equates too much: it drops bases (52_8 and 52_9) and letter case (2k and 2K), rounds (1/3 and 0.333333,
0.0000001 and 0), takes 10:30 for the fraction 1/3, (1, 2) for {1, 2}, {1, 1} for {1}, words for products of their
letters (no and on), any calculation for its result, so that copying the question is right, and drops primes."""

from __future__ import annotations

import re

from tba_hpc.grading.elements import brackets, elements, is_balanced

_RELATION = re.compile(r"[<>]|\\(?:le|ge|ne|lt|gt)(?![a-zA-Z])")
_CALCULATION = re.compile(
    r"\\(?:a?(?:rc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|lg|exp|int|sum|prod|lim|binom|det|gcd|lcm|max|min|mod|pmod|bmod"
    r"|lfloor|lceil)(?![a-zA-Z])|!|\||\d\^\{?\d+\^"
)
_PRIMES = re.compile(r"\w'+")
_NOT_MATHEMATICS = re.compile(r"__|\*\*|[`\"@#]|\d_\d+_|\b0[xob]\d")


def objection(given: str, right: str) -> str:
    """Against asking about two normalised answers; empty if there is none."""
    if _NOT_MATHEMATICS.search(given):
        return "not mathematics"
    if not is_balanced(given):
        return "brackets that do not close"
    if set(_PRIMES.findall(given)) != set(_PRIMES.findall(right)):
        return "other primes"
    if ":" in given or ":" in right:
        return "another ratio or time"
    if _CALCULATION.search(given) and not _CALCULATION.search(right):
        return "a calculation that is not carried out"
    wanted = letters(right)
    if any(letter not in wanted and letter.swapcase() in wanted for letter in letters(given)):
        return "letters in another case"
    around = brackets(given), brackets(right)
    relations = [bool(_RELATION.search(text)) for text in (given, right)]
    if relations[0] != relations[1] and not _may_be_intervals(right if relations[0] else given):
        return "an inequality"
    # ± may stand for two elements, a relation for an interval.
    if r"\pm" not in given + right and (all(around) or not any(relations)):
        if around[0] != around[1]:
            return "other brackets"
        if len(elements(given)) != len(elements(right)):
            return "another number of elements"
    return ""


def _may_be_intervals(text: str) -> bool:
    return bool(brackets(text)) or r"\cup" in text


def letters(text: str) -> set[str]:
    """Those that are not part of a command."""
    return set(re.sub(r"\\[a-zA-Z]+|[^a-zA-Z]", "", text))
