"""Text to exact numbers. Nothing is evaluated: what does not have the form of a number is none.

Work is bounded by `LONGEST` characters and `MOST_DIGITS` digits, whatever the text."""

from __future__ import annotations

import math
import re
from fractions import Fraction

LONGEST = 1000
"""Characters; a longer text is no number."""
MOST_DIGITS = 1000
"""Of a numerator or denominator; a number with more, such as 9^{9999}, is none."""

_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = rf"(?:{_INTEGER}(?:\.\d*)?|\.\d+)"
_WITH_POINT = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.]|\\(?:overline|bar|dots|ldots))")
_SIGN = r"[+-]?\s*"
_EXPONENT = r"\^\s*(?:\{\s*[+-]?\s*\d{1,4}\s*\}|\d{1,4})"

_PLAIN = re.compile(_DECIMAL)
_REPEATING = re.compile(rf"(?P<start>{_INTEGER}?\.\d*)\\(?:overline|bar)\s*\{{(?P<period>\d+)\}}")
_E_NOTATION = re.compile(rf"(?P<factor>{_DECIMAL})[eE](?P<exponent>[+-]?\d{{1,4}})")
_POWER = re.compile(rf"(?P<base>{_DECIMAL}|\(\s*{_SIGN}{_DECIMAL}\s*\))\s*(?P<exponent>{_EXPONENT})")
_SCIENTIFIC = re.compile(rf"(?P<factor>{_DECIMAL})\s*(?:\\times|\\cdot|\*|x)\s*10\s*(?P<exponent>{_EXPONENT})")
_SLASH = re.compile(rf"(?P<whole>\d+\s+)?(?P<numerator>{_DECIMAL})\s*/\s*(?P<denominator>{_DECIMAL})")
_FRAC = re.compile(
    rf"(?P<whole>\d+)?\s*\\[dtc]?frac\s*(?:"
    rf"\{{(?P<numerator>\s*{_SIGN}{_DECIMAL}\s*)\}}|(?P<numerator_digit>\d))\s*(?:"
    rf"\{{(?P<denominator>\s*{_SIGN}{_DECIMAL}\s*)\}}|(?P<denominator_digit>\d))"
)


def parse_number(text: str) -> Fraction | None:
    r"""The number that all of `text` (ASCII) is, or None.

    Integers and decimals, with commas between groups of three digits or without; repeating decimals
    `0.\overline{3}`; `1e3`, `1.5 \times 10^{3}`; powers of one number, `2^{10}`; fractions `1/2`, `\frac{1}{2}`,
    `\frac12`; mixed numbers `1 1/2`, `1\frac{1}{2}`; any of them after one sign, and all of it in parentheses."""
    text = text.strip()
    if len(text) > LONGEST or not text.isascii():
        return None
    if text.startswith("(") and text.endswith(")") and "(" not in text[1:]:
        text = text[1:-1].strip()
    negative = text.startswith("-")
    value = _unsigned(text[1:].lstrip() if text.startswith(("-", "+")) else text)
    return -value if negative and value is not None else value


def spell_number(value: Fraction) -> str:
    """`72`, `-1/2`: one spelling a number."""
    return str(value)


def decimals_as_fractions(text: str) -> str:
    r"""Each decimal of a formula as `\frac{15}{10}`: algebra would round it."""
    return _WITH_POINT.sub(_as_fraction, text)


def _as_fraction(match: re.Match[str]) -> str:
    numerator = (match[1] + match[2]).lstrip("0") or "0"
    return rf"\frac{{{numerator}}}{{1{'0' * len(match[2])}}}"


def _unsigned(text: str) -> Fraction | None:
    if _PLAIN.fullmatch(text):
        return _decimal(text)
    for form, value in (
        (_FRAC, _frac),
        (_SLASH, _slash),
        (_SCIENTIFIC, _scientific),
        (_E_NOTATION, _scientific),
        (_POWER, _power),
        (_REPEATING, _repeating),
    ):
        if match := form.fullmatch(text):
            return value(match)
    return None


def _decimal(text: str) -> Fraction:
    """Of at most `LONGEST` characters: Python's conversion takes time with the square of the digits."""
    whole, _, places = text.replace(",", "").partition(".")
    return Fraction(int(whole + places or "0"), 10 ** len(places))


def _signed(text: str) -> Fraction:
    digits = text.strip(" ()").lstrip("+- ")
    return -_decimal(digits) if "-" in text else _decimal(digits)


def _frac(match: re.Match[str]) -> Fraction | None:
    numerator = _signed(match["numerator"] or match["numerator_digit"])
    denominator = _signed(match["denominator"] or match["denominator_digit"])
    return _mixed(match["whole"], numerator, denominator)


def _slash(match: re.Match[str]) -> Fraction | None:
    return _mixed(match["whole"], _decimal(match["numerator"]), _decimal(match["denominator"]))


def _mixed(whole: str | None, numerator: Fraction, denominator: Fraction) -> Fraction | None:
    if denominator == 0:
        return None
    part = numerator / denominator
    if whole is None:
        return part
    return Fraction(int(whole)) + part if 0 <= part < 1 else None


def _scientific(match: re.Match[str]) -> Fraction | None:
    power = _bounded_power(Fraction(10), _exponent(match))
    return None if power is None else _decimal(match["factor"]) * power


def _power(match: re.Match[str]) -> Fraction | None:
    return _bounded_power(_signed(match["base"]), _exponent(match))


def _exponent(match: re.Match[str]) -> int:
    return int(re.sub(r"[^\d-]", "", match["exponent"]))


def _bounded_power(base: Fraction, exponent: int) -> Fraction | None:
    largest = max(abs(base.numerator), base.denominator)
    if math.log10(largest) * abs(exponent) >= MOST_DIGITS or (base == 0 and exponent <= 0):
        return None
    return Fraction(base**exponent)


def _repeating(match: re.Match[str]) -> Fraction:
    start, period = match["start"], match["period"]
    places = len(start.partition(".")[2])
    return _decimal(start) + Fraction(int(period), 10**places * (10 ** len(period) - 1))
