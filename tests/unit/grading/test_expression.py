import contextlib
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.grading.expression import MAX_CHARACTERS, NotArithmeticError, parse

VALUES = {
    "7": 7,
    "0": 0,
    " 3 + 5 ": 8,
    "3+5*7": 38,
    "(3+5)*7": 56,
    "20-5-3": 12,
    "20-(5-3)": 18,
    "24/4/2": 3,
    "24/(4/2)": 12,
    "8/(3-8/3)": 24,
    "1/3": Fraction(1, 3),
    "½": Fraction(1, 2),
    "-3+5": 2,
    "-3*5": -15,
    "2*(-3+5)": 4,
    "5-(-3)": 8,
    "-(3-5)": 2,
    "((((7))))": 7,
    "3 × 5 ÷ 5": 3,
    "5 − 3": 2,
    "5 – 3": 2,
    "3·5": 15,
    "（３＋５）＊７": 56,
    "٣+٥": 8,
    r"3 \times 5": 15,
    r"3 \cdot 5": 15,
    r"15 \div 5": 3,
    r"\left(3+5\right)\,\times\,7": 56,
    r"\frac{3}{5}": Fraction(3, 5),
    r"\dfrac{3+5}{2}*7": 28,
    r"\frac{\frac{1}{2}}{\frac{1}{3}}": Fraction(3, 2),
    r"\frac{-3}{5} + 1": Fraction(2, 5),
    r"1/\frac{1}{2}": 2,
    "3 x 5": 15,
    "3X5x2": 30,
    "(3)x(5)": 15,
    "3 ｘ 5": 15,
    "10x5": 50,
    "[3+5]*7": 56,
    "{3+5}*7": 56,
    "[(3+5)*{7-5}]/2": 8,
    r"\left\{3+5\right\}*7": 56,
    r"\frac{{3}+5}{2}": 4,
    r"{3+5}\cdot\frac{3}{{5}}": Fraction(24, 5),
    "[-3]+5": 2,
    "999999999": 999999999,
}

NO_ARITHMETIC = {
    "empty": ["", " ", "()", "-", r"\frac{}{}"],
    "operands missing": ["3+", "*3", "3+*5", "(3+)", "+3", "+", "(+3)"],
    "signs within": ["5--3", "5*-3", "--3", "5+-3"],
    "operators missing": ["3 5", "3(5)", "(3)(5)", r"3\frac{1}{2}", "(3)5", "[3]5", "3{5}", "{3}{5}"],
    "unbalanced": [
        "(3",
        "3)",
        "(3))",
        ")3(",
        "((3)",
        r"\frac{3}{5",
        r"\frac{3}",
        r"\frac{(3}{5)}",
        "3}",
        "3}{5",
        "[3)",
        "(3]",
        "{3)",
        "[3}",
        "([3)]",
        r"\frac[3]{5}",
        r"\frac{[3}]{5}",
        "[]",
        "{}",
        r"\frac{3}{5}{7}",
    ],
    "other operators": ["3**5", "3//5", "3^5", "3%5", "3!", "3²", "3<5", "3,5"],
    "other numbers": ["0x10", "1_0", "1e3", "3.5", ".5", "3.", "1,080", "007", "00", "1" * 10, "Ⅷ", "①"],
    "names": [
        "x",
        "3y5",
        "3x",
        "x5",
        "3xx5",
        "0X10",
        "__import__('os')",
        "().__class__",
        "abs(3)",
        "inf",
        "nan",
        r"\sqrt{3}",
        r"\timesx",
        "3 times 5",
    ],
    "divisions by zero": ["3/0", "3/(5-5)", r"\frac{3}{5-5}", "0/0"],
}


@pytest.mark.parametrize(("text", "value"), VALUES.items(), ids=VALUES)
def test_value(text, value):
    assert parse(text).value == value


@pytest.mark.parametrize("text", [text for kind in NO_ARITHMETIC.values() for text in kind])
def test_all_else_is_refused_with_a_reason(text):
    with pytest.raises(NotArithmeticError, match=r"."):
        parse(text)


@pytest.mark.parametrize(
    ("text", "short"),
    {
        "((3)) * (5 + 7)": "3*(5+7)",
        "3 * (5 * 7)": "3*5*7",
        "3 + (5 - 7)": "3+5-7",
        "3 - (5 - 7)": "3-(5-7)",
        "3 / (5 * 7)": "3/(5*7)",
        "(3 * 5) / 7": "3*5/7",
        "3 + (-5)": "3+(-5)",
        "(-3) + 5": "-3+5",
        r"\frac{3+5}{7}": "(3+5)/7",
        "３ × ٥": "3*5",
    }.items(),
)
def test_text_is_free_of_spaces_and_needless_parentheses(text, short):
    assert parse(text).text == short
    assert parse(short).value == parse(text).value


def test_numbers_are_those_written_in_their_order():
    assert parse(r"-7*(12-0) + \frac{7}{3}").numbers == (7, 12, 0, 7, 3)


@pytest.mark.parametrize("text", ["(" * 120 + "3" + ")" * 120, "-(" * 80 + "3" + ")" * 80, "+".join("1" * 128)])
def test_depth_is_no_danger(text):
    assert abs(parse(text).value) in (3, 128)


@pytest.mark.parametrize(
    "text", ["1" + "+1" * MAX_CHARACTERS, "(" * 10**6, "9" * 10**6, " " * 10**6, "\\frac{" * 10**6]
)
def test_length_is_bounded(text):
    started = time.process_time()
    with pytest.raises(NotArithmeticError, match="longer than"):
        parse(text)
    assert time.process_time() - started < 0.1


def slow_value(tree):
    """Of a nested tuple (left, operator, right) of numbers, or None where it divides by zero."""
    if isinstance(tree, int):
        return Fraction(tree)
    left, operator, right = slow_value(tree[0]), tree[1], slow_value(tree[2])
    if left is None or right is None or (operator == "/" and right == 0):
        return None
    return {"+": left + right, "-": left - right, "*": left * right, "/": left / (right or 1)}[operator]


def written(tree, spaces):
    """With all parentheses, and with spaces where the bits of `spaces` say so."""
    if isinstance(tree, int):
        return str(tree)
    return f"({written(tree[0], spaces // 2)}{' ' * (spaces % 2)}{tree[1]}{written(tree[2], spaces // 2)})"


TREES = st.recursive(st.integers(0, 99), lambda trees: st.tuples(trees, st.sampled_from("+-*/"), trees), max_leaves=8)


@given(TREES, st.integers(0, 255))
def test_agrees_with_the_tree_that_was_written(tree, spaces):
    text, value = written(tree, spaces), slow_value(tree)
    if value is None:
        with pytest.raises(NotArithmeticError, match="divides by zero"):
            parse(text)
    else:
        expression = parse(text)
        assert expression.value == value
        again = parse(expression.text)
        assert (again.value, again.text, again.numbers) == (value, expression.text, expression.numbers)


@given(st.text() | st.text("0123456789+-*/(){}[] \\frac=._ex", max_size=40))
def test_no_text_does_anything_but_parse_or_be_refused(text):
    with contextlib.suppress(NotArithmeticError):
        assert isinstance(parse(text).value, Fraction)
