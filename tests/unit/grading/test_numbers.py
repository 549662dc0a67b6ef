"""Text to exact numbers."""

import time
from fractions import Fraction

import pytest

from tba_hpc.grading.numbers import parse_number, spell_number
from tba_hpc.grading.quantities import parse_quantity

NUMBERS = [
    ("72", 72),
    ("-72", -72),
    ("+72", 72),
    ("- 72", -72),
    ("(72)", 72),
    ("007", 7),
    ("1,080", 1080),
    ("1,080,000.50", Fraction(2160001, 2)),
    ("72.0", 72),
    ("72.", 72),
    (".5", Fraction(1, 2)),
    ("1e3", 1000),
    ("1.5E-3", Fraction(3, 2000)),
    (r"1.5 \times 10^{3}", 1500),
    (r"6.72\cdot10^{-5}", Fraction(672, 10**7)),
    ("10^3", 1000),
    ("(-2)^3", -8),
    ("2^{-2}", Fraction(1, 4)),
    ("1/2", Fraction(1, 2)),
    ("6 / 4", Fraction(3, 2)),
    ("1 1/2", Fraction(3, 2)),
    ("-1 1/2", Fraction(-3, 2)),
    (r"\frac{1}{2}", Fraction(1, 2)),
    (r"-\dfrac{1}{2}", Fraction(-1, 2)),
    (r"\frac{-1}{2}", Fraction(-1, 2)),
    (r"\frac12", Fraction(1, 2)),
    (r"\frac{270}7", Fraction(270, 7)),
    (r"1\frac{4}{5}", Fraction(9, 5)),
    (r"0.\overline{3}", Fraction(1, 3)),
    (r"0.1\overline{6}", Fraction(1, 6)),
]
NO_NUMBERS = ["", " ", "-", ".", "--4", "+-4", "1,08", "1,0800", "1.2.3", "1_0", "0x10", "0b1", "1/0", r"\frac{1}{0}"]
NO_NUMBERS += ["2 7/2", "1 2", "9**9**9", "9^9^9", "9^{9^9}", "9^{9999}", "1e9999", "0^0", "0^{-1}", "2+3", "3x"]
NO_NUMBERS += ["inf", "nan"]
NO_NUMBERS += ["1e", "１", "__import__('os')", "()", "72)", "1" * 1001]


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_a_number_is_exact(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_anything_else_is_no_number(text):
    assert parse_number(text) is None


@pytest.mark.parametrize(("value", "text"), [(Fraction(144, 2), "72"), (Fraction(-2, 4), "-1/2"), (Fraction(0), "0")])
def test_a_number_has_one_spelling(value, text):
    assert spell_number(value) == text


@pytest.mark.parametrize("text", [*(piece * 10**5 for piece in ("9", "9^", "1,", "1/", "(", " ")), "1e999"])
def test_no_text_takes_long(text):
    started = time.process_time()
    parse_number(text)
    parse_quantity(text)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("72 clips altogether.", 72),
        ("72km", 72),
        ("60 km/h", 60),
        ("72 m^2", 72),
        ("15cm^2", 15),
        ("5 million", 5_000_000),
        ("5 hundred thousand", 500_000),
        ("2 hundred million people", 200_000_000),
        ("2 people, million", 2),
        ("1.5 thousand dollars", 1500),
        ("1/2 cup", Fraction(1, 2)),
        ("1e3 apples", 1000),
        ("5th", 5),
        ("3x", None),
        ("3 4 apples", None),
        ("2 and a half", None),
        ("72 or 73", None),
        ("72.__class__", None),
        ("72;import os", None),
        ("clips", None),
    ],
)
def test_units_stand_beside_a_number(text, value):
    assert parse_quantity(text) == value
