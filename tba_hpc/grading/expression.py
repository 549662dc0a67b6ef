"""Arithmetic on whole numbers, read from untrusted text and worked out exactly.

There are + - * / with parentheses, and their other spellings: × ÷ −, an x between factors, brackets and braces,
full-width characters, decimal digits of any script, and of LaTeX `\\times`, `\\cdot`, `\\div`, `\\frac{a}{b}`, `\\left`
and `\\right`. A minus sign may also open an expression or a parenthesis, as in -3+5; elsewhere a number has no sign.
There is nothing else: no decimals, powers, names, separators (1,080 or 1_0), other bases (0x10), leading zeros, nor
products without a sign. Work and memory are bounded by the length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from tba_hpc.grading.characters import plain

MAX_CHARACTERS = 256
"""Of an expression; no answer to a puzzle comes near it."""
MAX_DIGITS = 9
"""Of a number."""

PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
ATOM = 3

_LATEX = [
    (re.compile(r"\\(?:times|cdot|ast)(?![A-Za-z])|[∗✕✖∙]|(?<!\b0)[xX]"), "*"),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
    (re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[,;:! ]|~"), " "),
    (re.compile(r"\\([{}])"), r"\1"),
]
_NUMERATOR, _DENOMINATOR = r"\frac{", "}{"
_TOKEN = re.compile(r"\s*(?:(\d+)|\\[dt]?(frac)\s*\{|(\})\s*\{|([-+*/(){}[\]]))", re.ASCII)
_CLOSES = {")": ("(",), "]": ("[",), "}": ("{", _DENOMINATOR), _DENOMINATOR: (_NUMERATOR,)}
_GROUPING = ("(", "[", "{", _NUMERATOR)
"""Brackets that may open where a number may stand."""


class NotArithmeticError(ValueError):
    """The text is no expression, or divides by zero; the message says why."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that has a value."""

    value: Fraction
    text: str
    """Without spaces and needless parentheses."""
    numbers: tuple[int, ...]
    """The numbers in it, from left to right."""
    precedence: int = ATOM
    """Of its outermost operation."""


def literal(number: int) -> Expression:
    """A number ≥ 0 by itself."""
    return Expression(Fraction(number), str(number), (number,))


def combine(left: Expression, operator: str, right: Expression) -> Expression:
    """`left operator right`, the operator one of + - * /. Raises `NotArithmeticError` for a division by zero."""
    precedence = PRECEDENCE[operator]
    groups_right = operator in "-/" or right.text.startswith("-")
    left_text = f"({left.text})" if left.precedence < precedence else left.text
    needs_group = right.precedence < precedence or (right.precedence == precedence and groups_right)
    right_text = f"({right.text})" if needs_group else right.text
    return Expression(
        _result(left.value, operator, right.value),
        left_text + operator + right_text,
        left.numbers + right.numbers,
        precedence,
    )


def parse(text: str) -> Expression:
    """The expression that `text` is, from end to end. Raises `NotArithmeticError` if it is none."""
    parser = _Parser()
    for token in _tokens(text):
        parser.take(token)
    return parser.result()


def _result(left: Fraction, operator: str, right: Fraction) -> Fraction:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if right == 0:
        raise NotArithmeticError("divides by zero")
    return left / right


def _tokens(text: str) -> Iterator[str]:
    """Numbers, operators and brackets; the opening brackets of a fraction are `_NUMERATOR` and `_DENOMINATOR`."""
    if len(text) > MAX_CHARACTERS:
        raise NotArithmeticError(f"longer than {MAX_CHARACTERS} characters")
    text = _ascii(text).rstrip()
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotArithmeticError(f"not arithmetic from {text[position : position + 12].strip()!r} on")
        number, fraction, middle, sign = match.groups()
        yield number or (fraction and _NUMERATOR) or (middle and _DENOMINATOR) or sign
        position = match.end()


def _ascii(text: str) -> str:
    """`text` with digits, operators and parentheses in ASCII."""
    text = plain(text)
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return text


class _Parser:
    """Operator precedence on two stacks: no depth of parentheses can exhaust Python's own."""

    def __init__(self) -> None:
        self._operands: list[Expression] = []
        self._operators: list[str] = []
        """Operators and opening brackets."""
        self._previous = "("
        """The token before, an opening bracket at the start."""

    def take(self, token: str) -> None:
        expects_operand = self._previous in PRECEDENCE or self._opens(self._previous)
        if token == "-" and self._opens(self._previous):
            # -3+5 is 0-3+5 with nothing written for the zero, which is no number of the puzzle.
            self._operands.append(Expression(Fraction(0), "", ()))
            self._operators.append(token)
        elif expects_operand != (token.isdigit() or token in _GROUPING):
            raise NotArithmeticError(f"{token!r} cannot follow {self._previous!r}" if self._operands else "no number")
        elif token.isdigit():
            self._operands.append(literal(_whole_number(token)))
        elif token in PRECEDENCE:
            self._reduce(PRECEDENCE[token])
            self._operators.append(token)
        elif token in _GROUPING:
            self._operators.append(token)
        else:
            self._close(token)
        self._previous = token

    def result(self) -> Expression:
        if not self._operands:
            raise NotArithmeticError("no expression")
        if self._previous in PRECEDENCE or self._opens(self._previous):
            raise NotArithmeticError(f"ends with {self._previous!r}")
        self._reduce(0)
        if self._operators:
            raise NotArithmeticError(f"{self._operators[-1]!r} is never closed")
        (only,) = self._operands
        return only

    @staticmethod
    def _opens(token: str) -> bool:
        return token in (*_GROUPING, _DENOMINATOR)

    def _close(self, token: str) -> None:
        self._reduce(0)
        opening = self._operators.pop() if self._operators else ""
        if opening not in _CLOSES[token]:
            raise NotArithmeticError(f"{token!r} closes nothing")
        if token == _DENOMINATOR:
            self._operators.append(_DENOMINATOR)
        elif opening == _DENOMINATOR:
            self._apply("/")

    def _reduce(self, precedence: int) -> None:
        """Applies the operators on top of the stack that bind at least as strongly, down to an opening bracket."""
        while self._operators and PRECEDENCE.get(self._operators[-1], -1) >= precedence:
            self._apply(self._operators.pop())

    def _apply(self, operator: str) -> None:
        right, left = self._operands.pop(), self._operands.pop()
        self._operands.append(combine(left, operator, right))


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise NotArithmeticError(f"a number of more than {MAX_DIGITS} digits")
    if digits.startswith("0") and digits != "0":
        raise NotArithmeticError(f"{digits} has leading zeros")
    return int(digits)
