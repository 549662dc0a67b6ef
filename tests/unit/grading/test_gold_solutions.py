"""Reference solutions are right, and wrong for the next problem."""

import json
from fractions import Fraction

import pytest

from tba_hpc.grading.gsm8k import grade_number
from tba_hpc.grading.mathematics import MathGrader


def rows(data_dir, name):
    return [json.loads(line) for line in (data_dir / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def shifted(values):
    return [*values[1:], values[0]]


@pytest.mark.parametrize(("name", "problems"), [("gsm8k_train", 7473), ("gsm8k_test", 1319)])
def test_gsm8k(data_dir, name, problems):
    solutions = [row["answer"] for row in rows(data_dir, name)]
    answers = [solution.partition("####")[2] for solution in solutions]
    values = [Fraction(answer.replace(",", "")) for answer in answers]
    assert len(solutions) == problems
    for solution, own, following, value, next_value in zip(
        solutions, answers, shifted(answers), values, shifted(values), strict=True
    ):
        assert grade_number(solution, own).correct
        assert grade_number(solution, following).correct == (value == next_value)


def test_math500(data_dir):
    problems = rows(data_dir, "math500_test")
    solutions, answers = [row["solution"] for row in problems], [row["answer"] for row in problems]
    with MathGrader(seconds_per_batch=200) as grader:
        own, following = grader.grade(solutions, answers), grader.grade(solutions, shifted(answers))
    assert (len(own), sum(verdict.correct for verdict in own)) == (500, 500)
    right = [(answers[i], shifted(answers)[i]) for i, verdict in enumerate(following) if verdict.correct]
    assert right == [("5", "x=5"), ("7", "7"), ("3", "3")]
    assert not [verdict for verdict in following if "took" in verdict.why or "died" in verdict.why]
