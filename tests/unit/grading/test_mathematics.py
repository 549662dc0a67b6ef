"""Answers that are formulas: every kind that the package's docstring has a policy for."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tba_hpc.grading.comparison import Outcome, compare, spelling
from tba_hpc.grading.latex import normalise
from tba_hpc.grading.mathematics import MathGrader, final_answer
from tba_hpc.settings import ConfigError

EQUAL_WITHOUT_ALGEBRA = [
    ("2, 3, and 5", "2,3,5"),
    (r"2,3,\text{ and }5", "2,3,5"),
    ("72", "72"),
    ("72.0", "72"),
    ("0.5", r"\frac12"),
    (r"\dfrac{6}{112}", r"\frac{3}{56}"),
    (r"\frac 59", r"\frac{5}{9}"),
    ("9/5", r"1\frac{4}{5}"),
    ("137.5", r"137 \frac{1}{2}"),
    (r"6.72 \times 10^{-5}", ".0000672"),
    ("10^3", "1000"),
    ("11,111,111,100", r"11,\! 111,\! 111,\! 100"),
    ("32348", r"\$32,\!348"),
    ("10{,}080", r"10,\!080"),
    ("−4", "-4"),
    ("４", "4"),
    ("50%", r"50\%"),
    ("90", r"90^\circ"),
    ("90°", r"90^{\circ}"),
    ("864", r"864 \mbox{ inches}^2"),
    (r"15\text{ cm}^2", r"15\mbox{ cm}^2"),
    ("15 cm^2", "15"),
    (r"5.4\text{ cents}.", r"5.4 \text{ cents}"),
    (r"\text{3}", "3"),
    (r"\mathbf{3}", "3"),
    ("**3**", "3"),
    ("$3$", "3"),
    ("x = 5", "5"),
    ("5", "x=5"),
    ("n = 2 + 3 = 5", "5"),
    ("2x+3", "y = 2x + 3"),
    ("[-2, 7]", r"x \in [-2,7]"),
    (r"x\in[-2,7]", "[-2,7]"),
    ("52_{8}", "52_8"),
    ("52", "52_8"),
    ("Evelyn", r"\text{Evelyn}"),
    ("3.0", r"\text{3}"),
    ("Élan vital.", r"\text{élan-vital}"),
    (r"\text{evelyn}", r"\text{Evelyn}"),
    (r"\textbf{Evelyn}", r"\text{Evelyn}"),
    ("C", r"\text{(C)}"),
    ("p-q", "p - q"),
    (r"\left(3,\frac{\pi}{2}\right)", r"(3, \frac{\pi}{2})"),
    (r"(3,\frac\pi2)", r"\left( 3, \frac{\pi}{2} \right)"),
    ("(3, π/2)", r"(3,\pi/2)"),
    ("288π", r"288 \pi"),
    ("√51", r"\sqrt{51}"),
    (r"11\sqrt2", r"11\sqrt{2}"),
    (r"1\text{ and }-2", "1,-2"),
    ("-2,1", "1,-2"),
    (r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"(0.5,\pi)", r"(\frac12,\pi)"),
    (r"\sqrt2\approx1.414", r"\sqrt{2}"),
    (r"10\text{ p.m.}", r"10\text{ pm}"),
]
EQUAL_BY_ALGEBRA = [
    (r"(14,\pi/81)", r"(14,\frac{\pi}{81})"),
    (r"(k+k,\pi/81)", r"(2k,\frac{\pi}{81})"),
    ("2(k+1)", "2k+2"),
    ("9i+6", "6+9i"),
    (r"\{-2,1+\sqrt5,1-\sqrt5\}", r"\{1\pm\sqrt{5},-2\}"),
    (r"3+2\sqrt2,3-2\sqrt2", r"3 \pm 2 \sqrt{2}"),
    ("5x-7y+11z=-4", "5x - 7y + 11z + 4 = 0"),
    ("y-2x=3", "y = 2x + 3"),
    (r"(3,\infty)\cup(-\infty,2)", r"(-\infty, 2) \cup (3, \infty)"),
    (r"-2\le x\le 7", r"x \in [-2,7]"),
    (r"\begin{pmatrix} 0.2 \\ -3.6 \end{pmatrix}", r"\begin{pmatrix} 1/5 \\ -18/5 \end{pmatrix}"),
    (r"\frac{\cos x}{\sin x}", r"\cot x"),
    (r"\sqrt{117}", r"3\sqrt{13}"),
    (r"0.5\pi", r"\frac{\pi}{2}"),
]
UNEQUAL = [
    # math-verify alone calls these equal
    ("52_9", "52_8"),
    ("2K", "2k"),
    ("0.333333", r"\frac13"),
    (r"0.333333\pi", r"\frac{\pi}{3}"),
    ("3.1415927", r"\pi"),
    ("1.414214", r"\sqrt{2}"),
    (r"\sqrt{2}+10^{-20}", r"\sqrt{2}"),
    ("0.0", "0.0000001"),
    ("50%", "0.5"),
    ("1:3", "10:30"),
    ("-2,1", "(-2,1)"),
    ("(-2,1)", "-2,1"),
    ("1,-2,-2", "1,-2"),
    ("1,1", "1"),
    ("on", r"\text{no}"),
    ("2+3", "5"),
    ("3!", "6"),
    (r"\sqrt{9}", "3"),
    (r"\sin^2 x+\cos^2 x", "1"),
    (r"\arctan\frac{1}{\sqrt3}", r"\frac{\pi}{6}"),
    (r"\int_0^1 \pi x dx", r"\frac{\pi}{2}"),
    # not even math-verify does
    ("73", "72"),
    ("3x", "3"),
    ("2x=14", "14"),
    ("5=7", "7"),
    ("x", "3"),
    ("y=5", "x=5"),
    ("0", "5x - 7y + 11z + 4 = 0"),
    ("(3,4)", "(3,4]"),
    ("(1,-2)", "(-2,1)"),
    (r"(14,\pi/80)", r"(14,\frac{\pi}{81})"),
    (r"(13,\frac{\pi}{81})", r"(14,\frac{\pi}{81})"),
    ("(-2,7)", "[-2,7]"),
    ("q-p", "p - q"),
    ("42", "52_8"),
    ("nevelyE", r"\text{Evelyn}"),
    ("an ellipse", r"\text{ellipse}"),
    (r"\text{(D)}", r"\text{(C)}"),
    ("4 or 5", "4"),
    (r"10\text{ a.m.}", r"10\text{ p.m.}"),
    (r"3+2\sqrt2", r"3 \pm 2 \sqrt{2}"),
    ("2k+2+0k^2+1", "2k+2"),
    (r"\emptyset", "3"),
    (r"\begin{vmatrix}1\\2\end{vmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"\infty", "3"),
    ("x>2", "3"),
    # hostile and costly
    ("9^{9^9}", "9"),
    ("9^{9^9}", r"\sqrt{2}"),
    ("9**9**9", "x"),
    ("1_0", "10"),
    ("0x10", "16"),
    ("0x10", "x"),
    ("__import__('os').system('true')", "x"),
    ("(x).__class__", "x"),
    (r"\input{/etc/passwd}", "x"),
    ("import os", "x"),
    ("x" * 5000, "x"),
    ("(" * 500 + "x", "x"),
]
NO_ANSWER = ["", " ", r"\boxed{}", r"\boxed{ }", r"\boxed{$$}", r"\boxed{\text{}}", "<answer></answer>", r"\boxed{72"]
NO_ANSWER += [r"<think>\boxed{72}</think>", r"\boxed{\frac{1}{2}", "72", r"\boxed{72} \boxed{7", r"\boxed{.}"]
NO_ANSWER += [r"\boxed{}72"]


@pytest.fixture(scope="module")
def grader():
    with MathGrader() as grader:
        yield grader


@pytest.mark.parametrize(("answer", "right"), EQUAL_WITHOUT_ALGEBRA)
def test_equal_without_algebra(answer, right):
    assert compare(normalise(answer), right).outcome is Outcome.EQUAL


@pytest.mark.parametrize(("answer", "right"), EQUAL_BY_ALGEBRA)
def test_equal_by_algebra(grader, answer, right):
    (verdict,) = grader.grade([rf"\boxed{{{answer}}}"], [right])
    assert (verdict.correct, verdict.why) == (True, "equal by algebra")


@pytest.mark.parametrize(("answer", "right"), UNEQUAL)
def test_unequal(grader, answer, right):
    wrong, after = grader.grade([rf"\boxed{{{answer}}}", r"\boxed{1+x^2}"], [right, "x^2+1"])
    assert not wrong.correct, wrong
    assert "died" not in wrong.why
    assert after.correct


@pytest.mark.parametrize("right", ["72", "x", r"\text{Evelyn}", "0"])
def test_no_answer_is_wrong(right):
    with MathGrader() as grader:
        verdicts = grader.grade(NO_ANSWER, [right] * len(NO_ANSWER))
    assert not any(verdict.correct for verdict in verdicts)
    assert {verdict.extracted for verdict in verdicts} == {None}


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{3}, no, \boxed{\frac{1}{2}} as 7 says", r"\frac{1}{2}"),
        (r"\boxed{\boxed{4}}", "4"),
        (r"\boxed{\frac{\boxed{1}}{2}}", r"\frac{1}{2}"),
        ("The final answer is $2k + 2$. I hope it is correct.", "2k+2"),
        ("**Final Answer:** $x$", "x"),
        ("<answer>$x$</answer>", "x"),
        (r"The answer is 3, thus \boxed{4}", "4"),
        (r"\boxed{4", ""),
        ("4", None),
    ],
)
def test_the_final_answer(response, answer):
    assert final_answer(response) == answer


@pytest.mark.parametrize(
    ("spellings", "canonical"),
    [
        (["0.5", r"\frac12", r"\dfrac{2}{4}", r"x=\frac{1}{2}", "1/2", "50/100"], "1/2"),
        (["1,080", "1080.0", r"1{,}080", r"\$1080", r"1080\text{ cm}"], "1080"),
        (["(C)", r"\text{(C)}", "C"], "C"),
        (["2k + 2", "y=2k+2"], "2k+2"),
        (["x+2y = 3", "x + 2y=3."], "x+2y=3"),
        ([r"\left(3,\frac{\pi}2\right)", r"(3, \frac{\pi}{2})"], r"(3,\frac{\pi}{2})"),
    ],
)
def test_answers_that_read_the_same_have_one_spelling(spellings, canonical):
    assert {spelling(normalise(text)) for text in spellings} == {canonical}


def test_an_answer_in_the_data_has_to_say_something(grader):
    with pytest.raises(ConfigError, match="is empty; correct it in the data"):
        grader.grade([r"\boxed{}"], [" "])


FRAGMENTS = r"\frac \sqrt { } \text{ ^ _ ( ) [ , = \in \pm 99999999999999999999 x . ½ \ "
PIECES = st.sampled_from(FRAGMENTS.split())


@settings(max_examples=300, deadline=2000)
@given(st.one_of(st.text(), st.lists(st.one_of(PIECES, st.text(max_size=3))).map("".join)))
def test_no_text_is_an_error_or_takes_long(text):
    answer = normalise(text)
    spelling(answer)
    for right in ("72", r"\text{Evelyn}", "x^2+1", "(1,2]", "52_8", "x=5", "x+y=5"):
        compare(answer, right)


@pytest.mark.parametrize("piece", ["\\frac", "\\text{", "{", "*", " ", "(", "\\boxed{", "=", ",", "9", "é", "a "])
def test_long_answers_take_no_longer_than_their_length(piece):
    started = time.process_time()
    for length in (1999, 10**5):
        compare(normalise((piece * length)[:length]), "x^2+1")
    assert time.process_time() - started < 0.5
