"""Answers that are formulas in more than one form: commas, symbols, names, equations, intervals."""

import time

import pytest

from tba_hpc.grading.comparison import Outcome, compare, spelling
from tba_hpc.grading.latex import normalise
from tba_hpc.grading.mathematics import MathGrader

EQUAL = [
    # commas
    ("1,234", "1234"),
    ("1,234,567", "1{,}234{,}567"),
    ("(1,234)", "(1, 234)"),
    (r"\left(1, 234\right)", "(1,234)"),
    (r"(1{,}234, 5)", "(1234,5)"),
    (r"(1,\!234, 5)", "(1234,5)"),
    (r"(1\,234, 5)", "(1234, 5)"),
    ("(1\u202f234, 5)", "(1234,5)"),
    ("[1,200)", "[1, 200)"),
    (r"\{200,100\}", r"\{100, 200\}"),
    ("100, 200", "200, 100"),
    (r"100\text{ and }200", "100, 200"),
    ("100 and 200", "200, 100"),
    ("1,234, 5", "5, 1234"),
    ("100, 200, x", "x, 200, 100"),
    (r"\frac{1,234}{5}", r"\frac{1234}{5}"),
    # symbols
    (r"\frac{2x}{2}", "x"),
    ("x", r"\frac{2x}{2}"),
    ("2k-k", "k"),
    # names
    ("AB", "AB"),
    (r"\text{AB}", "AB"),
    ("AB", r"\mathrm{AB}"),
    ("ab", "ba"),
    ("y=ab", "ba"),
    # equations
    ("x=y+1", "y=x-1"),
    ("2x=2y+2", "y=x-1"),
    ("4x^2+9y^2=36", r"\frac{x^2}{9}+\frac{y^2}{4}=1"),
    ("2x^5+2y^5+2xy=2", "x^5+y^5+xy=1"),
    ("2\\sin x+2y^5+2x=0", "\\sin x+y^5+x=0"),
    ("5=x", "x=5"),
    # intervals
    ("(1,2)", "1<x<2"),
    ("1<x<2", "(1,2)"),
    (r"1\le x<2", "[1,2)"),
    ("[1,2)", r"1 \leq x < 2"),
    (r"x\in(1,2)", "1<x<2"),
    ("x>2", r"(2,\infty)"),
    (r"(2,+\infty)", "x>2"),
    (r"x\ne2", r"(-\infty,2)\cup(2,\infty)"),
    (r"\mathbb{R}", r"(-\infty,\infty)"),
    (r"(-\infty,+\infty)", r"\mathbb{R}"),
    ("ℝ", r"\mathbb R"),
    (r"x \in \mathbb{R}", r"\mathbb{R}"),
    (r"\mathbb{R}", r"x \in \mathbb{R}"),
    # points
    ("(x,y)=(1,2)", "(1,2)"),
    ("(1,2)", "(x,y)=(1,2)"),
    (r"(r,\theta)=(1,\pi)", r"(1,\pi)"),
    # layout
    (r"\underline{5}", "5"),
    ("x+1", r"\underline{x+1}"),
]
UNEQUAL = [
    # commas
    ("(1,234)", "1234"),
    ("1234", "(1,234)"),
    ("(1234)", "(1,234)"),
    ("(234,1)", "(1,234)"),
    ("100, 200", "100200"),
    ("100200", "100, 200"),
    ("100, 201", "100, 200"),
    ("100, 200, 200", "100, 200"),
    ("1,1,2", "1,2,2"),
    ("(1{,}234, 5)", "(1,234,5)"),
    ("1234, 1235", "1234"),
    ("1,234 or 1,235", "1234"),
    (r"1,234\text{ or }1,235", "1235"),
    # symbols
    (r"\frac{2x}{3}", "x"),
    (r"\frac{2X}{2}", "x"),
    (r"\frac{2y}{2}", "x"),
    ("x+1", "x"),
    (r"\sin(\arcsin x)", "x"),
    (r"\frac{2x}{2}, y", "x"),
    # names
    ("BA", "AB"),
    ("CAB", "ABC"),
    ("ED", "DE"),
    ("ab", "AB"),
    (r"B \cdot A", "AB"),
    ("AB, BA", "AB"),
    ("AB or BA", "AB"),
    ("aB", "ab"),
    # equations
    ("x=y+2", "y=x-1"),
    ("x=y", "y=x-1"),
    ("x=1", "y=x-1"),
    ("0=0", "y=x-1"),
    ("x-y", "y=x-1"),
    ("x=y+1, x=y+2", "y=x-1"),
    ("x=y+1=y+2", "y=x-1"),
    ("x^5+y^5+xy=2", "x^5+y^5+xy=1"),
    ("2x=10", "x=5"),
    ("x+3=5", "x=5"),
    ("2x+3=14", "14"),
    ("x=5, x=7", "5"),
    # intervals
    ("[1,2]", "1<x<2"),
    ("1<x<2", "[1,2]"),
    ("1<x<3", "(1,2)"),
    ("1<y<2", "1<x<2"),
    ("1,2", "1<x<2"),
    (r"\{1,2\}", "1<x<2"),
    ("1<x<2", "1,2"),
    ("2", "x>2"),
    ("x<2, x>3", "x<2"),
    ("(1,2), (1,3)", "1<x<2"),
    (r"(1,2)\cup(5,6)", "1<x<2"),
    ("1<x<2, 3<x<4", "(1,2)"),
    ("(1,2,x>3)", "(1,2)"),
    ("[1,x>2]", "(1,x>2)"),
    (r"(-\infty,0)", r"\mathbb{R}"),
    (r"\mathbb{R}", r"(0,\infty)"),
    (r"\mathbb{Q}", r"\mathbb{R}"),
    (r"\mathbb{R}^2", r"\mathbb{R}"),
    (r"x\in(0,1)", r"\mathbb{R}"),
    # points
    ("(x,y)=(2,1)", "(1,2)"),
    ("(a,b)=(1,2)", "(x,y)=(1,2)"),
    ("(x,y)=(1,2),(2,1)", "(1,2)"),
    # layout
    (r"\underline{5}", "6"),
    (r"\underline{5}, 6", "6"),
]


@pytest.fixture(scope="module")
def grader():
    with MathGrader() as grader:
        yield grader


@pytest.mark.parametrize(("answer", "right"), EQUAL)
def test_equal(grader, answer, right):
    (verdict,) = grader.grade([rf"\boxed{{{answer}}}"], [right])
    assert verdict.correct, verdict


@pytest.mark.parametrize(("answer", "right"), UNEQUAL)
def test_unequal(grader, answer, right):
    (verdict,) = grader.grade([rf"\boxed{{{answer}}}"], [right])
    assert not verdict.correct, verdict
    assert not any(word in verdict.why for word in ("died", "took", "failed")), verdict


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("The answer is $2k$ because $k+k=2k$.", "2k"),
        (r"The answer is 5, since \(x>0\).", "5"),
        ("<answer>$x$", "x"),
    ],
)
def test_places_of_a_formula(grader, response, right):
    assert grader.grade([response], [right])[0].correct
    rival = {"2k": "$2k$ or $3k$", "5": "5 or 6", "x": "$x$ or $y$"}[right]
    assert not grader.grade([f"The answer is {rival}"], [right])[0].correct


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("1,234", "1234"),
        ("1,234,5", "1,234,5"),
        ("12,34", "12,34"),
        ("1,2345", "1,2345"),
        ("0,123", "0,123"),
        ("(1,234) 5,678", "(1,234)5678"),
        (r"\{1,234\}", r"\{1,234\}"),
        ("1,234)", "1234)"),
        (r"f\{1,\!234,5{,}678\}", r"f\{1234,5678\}"),
    ],
)
def test_commas_between_groups_of_digits_go_where_they_separate_nothing(answer, text):
    assert normalise(answer) == text


def test_a_list_and_a_number_have_different_spellings():
    assert [spelling(normalise(text)) for text in ("100, 200", "100,200", "(1,234)")] == [
        "100,200",
        "100200",
        "(1,234)",
    ]


@pytest.mark.parametrize("piece", ["1,234", ",234", "1{,}", r"1\,234", "(1,", "[", "A", "(x,y)=", "x<", r"\in ", "=x"])
def test_long_answers_take_no_longer_than_their_length(piece):
    started = time.process_time()
    for right in ("x^2+1", "(1,234)", "1<x<2", "y=x-1", "AB", "5"):
        assert compare(normalise((piece * 2000)[:1999]), right).outcome is not Outcome.EQUAL
    assert time.process_time() - started < 1
