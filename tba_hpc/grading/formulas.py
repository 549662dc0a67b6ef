"""What algebra says of two formulas before math-verify is asked: where it would take long, or say too little."""

from __future__ import annotations

from typing import Any

import sympy

_SAME = 1e-9
"""Formulas whose values differ by a smaller part of them may be equal."""
_POINTS = (61, 67)
"""Denominators of the values of variables."""


def are_equal(one: Any, other: Any) -> bool | None:
    """None if math-verify is to say. It compares a single symbol with anything by its text, so that 2x/2 is not x; and
    equations by their solutions, which few have that can be found."""
    if isinstance(one, sympy.Eq) and isinstance(other, sympy.Eq):
        return _are_equal_equations(one, other)
    if not (isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr)):
        return None
    # Saves the search for a form in which they are equal, which takes most of the time.
    if _differ(*(_value_at_a_point(formula, _POINTS[0]) for formula in (one, other))):
        return False
    if isinstance(one, sympy.Symbol) != isinstance(other, sympy.Symbol) and one.free_symbols == other.free_symbols:
        return bool(sympy.simplify(one - other) == 0)
    return None


def _are_equal_equations(one: sympy.Eq, other: sympy.Eq) -> bool | None:
    """True if one is the other times a number. One in a single variable is to be solved, so that 2x = 4 is not x = 2;
    what else has the same solutions is left to math-verify."""
    if one.free_symbols != other.free_symbols:
        return False
    if len(one.free_symbols) < 2:
        return None
    if not all(isinstance(side, sympy.Expr) for side in (*one.args, *other.args)):
        return None
    first, second = (equation.lhs - equation.rhs for equation in (one, other))
    if _differ(*(_value_at_a_point(first / second, point) for point in _POINTS)):
        return None
    ratio = sympy.simplify(first / second)
    return True if ratio.is_number and ratio.is_finite and ratio.is_nonzero else None


def _differ(one: sympy.Expr | None, other: sympy.Expr | None) -> bool:
    """Whether both are known and not the same. Numbers of algebra: floats end at 1e308."""
    if one is None or other is None:
        return False
    return bool(sympy.Abs(one - other) > _SAME * sympy.Max(sympy.Abs(one), sympy.Abs(other), 1))


def _value_at_a_point(formula: sympy.Expr, point: int) -> sympy.Expr | None:
    """Of an expression, each variable having a value that depends on its name. None if there is none, or if a name of
    several letters may be meant as their product."""
    names = {symbol: symbol.name for symbol in formula.free_symbols}
    if any(len(name.lstrip("\\")) > 1 for name in names.values()):
        return None
    values = {symbol: sympy.Rational(ord(name[-1]), point) for symbol, name in names.items()}
    value = formula.subs(values).doit().evalf(20)
    if not value.is_number or value.has(sympy.nan, sympy.zoo, sympy.oo):
        return None
    return value
