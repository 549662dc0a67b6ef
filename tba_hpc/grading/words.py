"""Words beside a number or a formula that make it another one, or not the only one. All others are units or remarks."""

from __future__ import annotations

import re

MULTIPLIERS = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SHORT_UNITS = (
    "mm|cm|km|mg|kg|ml|mL|ft|in|yd|mi|lbs?|oz|mph|kph|hrs?|mins?|secs?|st|nd|rd|th|m|g|s|h|l|L"
    "|cents?|hours?|minutes?|am|pm"
)
"""Those that may stand right behind a number; other letters there are variables."""

_PART = (
    "half|halves|third|thirds|quarters?|fourths?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?|hundredths?|root"
    "|reciprocal|inverse|negative|opposite|square|cube|multiple|factorial|logarithm|fraction|percent|percentage|%"
)
_BEFORE = (
    r"(?:\b(?:not|cannot|never|neither|nor|without|except|half|twice|thrice|double|triple|quadruple|times|plus|minus"
    r"|than|most|least|over|under|below|above|exceeds?|between|from"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
    rf"|(?:{_PART})(?:\s+\w+)?\s+of|(?<!adds )(?<!add )(?<!adding )(?<!comes )up\s+to)|n't)"
)
_SPOILING = re.compile(
    rf"{_BEFORE}(?:\s+(?:be|been|equal|to|exactly|even|just|of|the|an?))*[\s$(*-]*\Z",
    re.IGNORECASE,
)
"""At the end of what stands before a number."""
_LONGEST_SPOILING = 100  # characters
RIVAL = re.compile(
    r"\b(?:or|else|otherwise|unless|alternatively|either|maybe|perhaps|possibly|possible|but|if|instead|rather|could"
    r"|might|actually|wait|no(?=,))\b|\b(when|where|after)\b.*\b\1\b",
    re.IGNORECASE | re.DOTALL,
)
"""Words of someone who has more than one answer."""
CHANGING = re.compile(
    r"\band\s+(?:a|an|one|two|three)[\s-]+(?:half|halves|thirds?|quarters?|fourths?|fifths?)\b"
    r"|\b(?:minus|plus|squared|cubed|factorial|pi|point|or)\b",
    re.IGNORECASE,
)
"""Words behind a number."""
_SIGN = re.compile(r"(?<![\d)}])(?<![\d)}] )\b(?:minus|negative)\s+(?=[\d.\\$(]|[a-zA-Z]\b)", re.IGNORECASE)
_MEANINGFUL = re.compile(
    rf"{_BEFORE}|\b(?:negative|{'|'.join(MULTIPLIERS)}|half|halves)\b|{CHANGING.pattern}|{RIVAL.pattern}",
    re.IGNORECASE | re.DOTALL,
)


def spoil(before: str) -> bool:
    """Whether words that end right before a number make it another one: `half of`, `not`, `at most`."""
    return bool(_SPOILING.search(before[-_LONGEST_SPOILING:]))


def matter(words: str) -> bool:
    """Whether words beside a formula say something about it: negate, compare, multiply, or join another."""
    return bool(_MEANINGFUL.search(words))


def with_signs(text: str) -> str:
    """`minus 72` as `-72`, unless it is taken from another number."""
    return _SIGN.sub("-", text)
