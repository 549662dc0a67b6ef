"""Answers that are formulas: words and equations beside them, spellings of one formula, and marks around them."""

import pytest

from tba_hpc.grading.mathematics import MathGrader

EQUAL = [
    (r"\text{minus }72", "-72"),
    (r"5\text{ million}", "5000000"),
    (r"72\text{ square units}", "72"),
    (r"x^2\text{ cm}", "x^2"),
    (r"72\text{ (approximately)}", "72"),
    (r"\text{(B)}", r"\text{(B)}"),
    (r"\text{B}", r"\text{(B)}"),
    (r"\text{Evelyn}", r"\text{Evelyn}"),
    (r"\text{Area} = 72", "72"),
    ("48/2=24", "24"),
    ("f(2)=5", "5"),
    ("a_5=5", "5"),
    ("a_{10}=5", "5"),
    (r"\sin A=\frac12", r"\frac12"),
    ("AB=5", "5"),
    ("|z|=5", "5"),
    ("P(A)=5", "5"),
    (r"P(A \cap B)=5", "5"),
    (r"\angle ABC=50^\circ", "50"),
    ("f(x)=x+1", "x+1"),
    ("f^{-1}(3)=5", "5"),
    ("f(g(2))=5", "5"),
    ("f(x+1)=x+2", "x+2"),
    (r"m\angle ABC=50", "50"),
    (r"\cos 60^\circ=\frac12", r"\frac12"),
    ("x_1=5", "5"),
    (r"\theta=5", "5"),
    (r"\log_2 32=5", "5"),
    (r"\binom{5}{2}=10", "10"),
    (r"\sqrt{9}+2=5", "5"),
    (r"\frac{10}{2}=5", "5"),
    ("2^3-3=5", "5"),
    (r"1\frac12=1.5", "1.5"),
    (r"\frac{22}{2}\sqrt2=11\sqrt2", r"11\sqrt2"),
    ("x=2+3=5", "5"),
    ("y=2x+3", "y=2x+3"),
    ("y'=2x", "2x"),
    (r"\frac{2\cdot 15}{6}=5", "5"),
    ("y = 2x+3", "2x+3"),
    (r"\overline{AB}=5", "5"),
    ("f'(2)=5", "5"),
    ("i^2=-1", "-1"),
    ("f'(x)", "f'(x)"),
    ("x'", r"x^{\prime}"),
    ("x'", r"x^\prime"),
    (r"3+4\mathrm{i}", "3+4i"),
    (r"3+4\text{i}", "3+4i"),
    (r"\mathrm{e}^2", "e^2"),
    (r"2\mathrm{x}", "2x"),
    (r"\mathrm{arcsin} x", r"\arcsin x"),
    (r"5\text{ m}", "5"),
    (r"5\,\mathrm{g}", "5"),
    (r"5\text{m}", "5"),
    (r"5x\text{ cm}^2", "5x"),
    (r"5\pi\text{ m}^2", r"5\pi"),
    (r"90^\circ\text{C}", "90"),
    (r"5 \text{ N}", "5"),
    ("4^{1002}", "2^{2004}"),
    ("1+2^{2000}", "2^{2000}+1"),
    (r"x\cdot 2^{2000}", "2^{2000}x"),
    (r"\frac{2^{4005}}{2}", "2^{4004}"),
    ("{18}", "18"),
    (r"\frac{{3}}{{4}}", r"\frac34"),
    (r"\color{red}{3}", "3"),
    (r"{\color{red}3}", "3"),
    (r"\textcolor{blue}{3}", "3"),
    (r"\mathbf{\frac34}", r"\frac34"),
    (r"\mathbf{\frac{3}{4}}", r"\frac34"),
    (r"\texttt{3}", "3"),
    (r"\large 3", "3"),
    (r"\left. 3 \right.", "3"),
    (r"\begin{pmatrix}1\\[4pt]2\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"6:30 \text{ PM}", r"6:30\text{ p.m.}"),
]
UNEQUAL = [
    (r"\text{not } 72", "72"),
    (r"\text{less than }72", "72"),
    (r"\text{half of }72", "72"),
    (r"72\text{ or seventy-three}", "72"),
    (r"72\text{ and a half}", "72"),
    (r"\text{minus }72", "72"),
    ("72!", "72"),
    ("72...", "72"),
    (r"\text{at most }72", "72"),
    (r"\text{isn't }72", "72"),
    (r"\text{six or }5", "5"),
    (r"5\text{ million}", "5"),
    (r"\text{A or }B", r"\text{(B)}"),
    (r"\text{A or }B", "B"),
    (r"\text{Bob}, Evelyn", r"\text{Evelyn}"),
    (r"\text{not }x^2", "x^2"),
    (r"\text{the reciprocal of }\frac12", r"\frac12"),
    (r"\text{not } C", r"\text{(C)}"),
    ("x^2=5", "5"),
    ("x/2=5", "5"),
    (r"\frac{x}{2}=5", "5"),
    ("-x=5", "5"),
    (r"\sqrt{x}=5", "5"),
    ("10-x=5", "5"),
    ("2(x+1)=5", "5"),
    (r"\sqrt2=5", "5"),
    (r"\pi=5", "5"),
    ("x(x+1)=5", "5"),
    ("2f(3)=5", "5"),
    (r"\sqrt{9}+3=5", "5"),
    ("x=2=5", "5"),
    ("3+3=5", "5"),
    ("x^2+1=0", "0"),
    ("x+1=x+2", "x+2"),
    (r"5=11\sqrt2", r"11\sqrt2"),
    ("y=2x+4=2x+3", "y=2x+3"),
    ("y=2x+4=2x+3", "2x+3"),
    ("5=x+1", "x+1"),
    (r"x=10\sqrt2=11\sqrt2", r"11\sqrt2"),
    ("x+y=4=3", "x+y=3"),
    ("f''(x)", "f(x)"),
    ("x''", "x"),
    ("y'", "y"),
    ("f'(x)+1", "f(x)+1"),
    ("y", "y'"),
    (r"5\mathrm{i}", "5"),
    (r"5\mathrm{x}", "5"),
    (r"5\text{i}", "5"),
    (r"\mathrm{arcsin} x", "x"),
    (r"5\text{ e}", "5"),
    ("4^{1003}", "2^{2004}"),
    ("2+2^{2000}", "2^{2000}+1"),
    (r"x\cdot 2^{2001}", "2^{2000}x"),
    (r"\frac{{3}}{{5}}", r"\frac34"),
    (r"\color{red}{4}", "3"),
    (r"\begin{pmatrix}1\\[4pt]3\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"6:30 \text{ AM}", r"6:30\text{ p.m.}"),
    (r"\left. 3 \right.", "3/10"),
]
RIGHT = [
    ("**The final answer is $x^2$**.", "x^2"),
    ("Answer: $x^2$. It is correct. The answer is right.", "x^2"),
    ("The answer is minus 72.", "-72"),
    ("The answer is:\n\\[\nx^2\n\\]", "x^2"),
    ("**Final Answer**\n\n$$\nx^2\n$$", "x^2"),
    ("The answer is right triangle.", r"\text{right triangle}"),
    ("Answer:\n- $x^2$", "x^2"),
    ("The answer is $x^2$<|im_end|>The answer is 5", "x^2"),
    ("The answer is as follows: $x^2$", "x^2"),
]
WRONG = [
    ("The answer is $x^2$. The answer is wrong: the answer is $x$.", "x^2"),
    ("The answer is not $x^2$", "x^2"),
    ("The answer is:\n\\[\nx\n\\]\n$x^2$", "x^2"),
]


@pytest.fixture(scope="module")
def grader():
    with MathGrader(seconds_per_answer=20) as grader:
        yield grader


@pytest.mark.parametrize(("response", "right"), [*((rf"\boxed{{{answer}}}", right) for answer, right in EQUAL), *RIGHT])
def test_right(grader, response, right):
    (verdict,) = grader.grade([response], [right])
    assert verdict.correct, verdict


@pytest.mark.parametrize(
    ("response", "right"), [*((rf"\boxed{{{answer}}}", right) for answer, right in UNEQUAL), *WRONG]
)
def test_wrong(grader, response, right):
    (verdict,) = grader.grade([response], [right])
    assert not verdict.correct, verdict
    assert not any(word in verdict.why for word in ("died", "took", "failed")), verdict
