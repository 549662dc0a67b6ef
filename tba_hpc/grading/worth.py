"""What a calculation of numbers alone is worth, approximately: sums, products, powers, fractions and roots, in LaTeX or
plain. Work is bounded by the length of the text; nothing is evaluated."""

from __future__ import annotations

import math
import re

_LONGEST = 300
"""Characters; a longer text is no calculation."""
_DEEPEST = 20
"""Brackets in brackets."""
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+\.?\d*|\.\d+)|(?P<name>\\[dtc]?frac|\\sqrt|\\pi)(?![a-zA-Z])"
    r"|(?P<times>\\(?:cdot|times|ast)(?![a-zA-Z])|(?<=[\d)} ])[xX](?=\s*[\d(\\$.]))|(?P<over>\\div(?![a-zA-Z]))"
    r"|(?P<sign>\*\*|[-+*/^(){}\[\]]))"
)
_CLOSING = {"(": ")", "{": "}", "[": "]"}


class _NoCalculationError(ValueError):
    pass


def worth(text: str) -> float | None:
    """None if `text` is no such calculation, or has no value."""
    if len(text) > _LONGEST:
        return None
    try:
        calculation = _Calculation(_tokens(text.replace("$", "")))
        value = calculation.sum(0)
        return value if calculation.at_end and math.isfinite(value) else None
    except (_NoCalculationError, ArithmeticError):
        return None


def _tokens(text: str) -> list[str]:
    position, tokens, text = 0, [], text.rstrip()
    while position < len(text):
        if (match := _TOKEN.match(text, position)) is None:
            raise _NoCalculationError
        tokens.append("*" if match["times"] else "/" if match["over"] else match.group().strip().replace("**", "^"))
        position = match.end()
    return tokens


class _Calculation:
    """Recursive descent; `depth` counts brackets, so that Python's own stack holds."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._next = 0

    @property
    def at_end(self) -> bool:
        return not self._tokens[self._next]

    def sum(self, depth: int) -> float:
        value = self._product(depth)
        while (sign := self._tokens[self._next]) in ("+", "-"):
            self._next += 1
            value += self._product(depth) if sign == "+" else -self._product(depth)
        return value

    def _product(self, depth: int) -> float:
        negative = self._take("-")
        value = self._power(depth)
        while True:
            if self._take("/"):
                value /= self._power(depth)
            elif self._take("*") or self._is_factor():
                value *= self._power(depth)
            else:
                return -value if negative else value

    def _is_factor(self) -> bool:
        """Whether a factor follows without a sign. A fraction behind a number may be the rest of a mixed one."""
        token, before = self._tokens[self._next], self._tokens[self._next - 1]
        if token.endswith("frac") and before[-1:].isdigit():
            raise _NoCalculationError
        return token[:1] in ("(", "\\")

    def _power(self, depth: int) -> float:
        base = self._atom(depth)
        if not self._take("^"):
            return base
        negative = self._take("-")
        exponent = self._atom(depth)
        value = base ** (-exponent if negative else exponent)
        if isinstance(value, complex):
            raise _NoCalculationError
        return float(value)

    def _atom(self, depth: int) -> float:
        token = self._tokens[self._next]
        self._next += 1
        if not token or depth > _DEEPEST:
            raise _NoCalculationError
        if token[0].isdigit() or token[0] == ".":
            return float(token.replace(",", ""))
        if token == r"\pi":
            return math.pi
        if token.endswith("frac"):
            numerator = self._atom(depth + 1)
            return numerator / self._atom(depth + 1)
        if token == r"\sqrt":
            index = self._atom(depth + 1) if self._tokens[self._next] == "[" else 2.0
            value = self._atom(depth + 1) ** (1 / index)
            if isinstance(value, complex):
                raise _NoCalculationError
            return float(value)
        if token not in _CLOSING:
            raise _NoCalculationError
        value = self.sum(depth + 1)
        if not self._take(_CLOSING[token]):
            raise _NoCalculationError
        return value

    def _take(self, token: str) -> bool:
        taken = self._tokens[self._next] == token
        self._next += taken
        return taken
