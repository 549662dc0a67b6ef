"""Numbers with what people write beside them: units, and words that multiply."""

from __future__ import annotations

import re
from fractions import Fraction

from tba_hpc.grading.numbers import LONGEST, parse_number
from tba_hpc.grading.words import CHANGING, MULTIPLIERS, SHORT_UNITS

_MULTIPLYING = re.compile(rf"[\s,-]*({'|'.join(MULTIPLIERS)})\b")
_POWER = r"(?:\^?\{?[23]\}?)?"
_QUANTITY = re.compile(
    r"(?P<number>[^a-zA-Z]*[\d)}.]|[^a-zA-Z]*\\[dtc]?frac[^a-zA-Z]*[\d}]|.*[eE][+-]?\d+)"
    rf"(?:[ \t-]+(?=[a-zA-Z]{{2}})|\s*(?=(?:{SHORT_UNITS}){_POWER}(?![a-zA-Z]))|(?=/\s*[a-zA-Z])|(?=,\s))"
    rf"(?P<words>(?:[\s,./()-]*[a-zA-Z']++{_POWER})*)[\s.,()]*"
)


def parse_quantity(text: str) -> Fraction | None:
    """The number of `72`, `72 clips altogether`, `60 km/h`, `5 million`, or None. `text` is `readable`; words that hold
    digits, or a number beside them that they belong to (`2 and a half`), leave none."""
    text = text.strip()
    if text.endswith(".."):
        return None  # it goes on
    text = text.rstrip(".,;:").rstrip()
    if (number := parse_number(text)) is not None:
        return number
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST else None
    if match is None or CHANGING.search(match["words"]):
        return None
    number = parse_number(match["number"].rstrip(".,"))
    return None if number is None else number * multiplier(match["words"])


def multiplier(words: str) -> int:
    """What they begin with: 10⁶ of `million people`, 10⁵ of `hundred thousand`; 1 of other words. Of more than three
    multipliers in a row the first three count."""
    product, position = 1, 0
    for _ in range(3):
        if (match := _MULTIPLYING.match(words, position)) is None:
            break
        product, position = product * MULTIPLIERS[match[1]], match.end()
    return product
