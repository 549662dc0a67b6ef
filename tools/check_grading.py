"""How well graders judge reference solutions: those of GSM8K and of MATH-500 against their own answer, which has to be
right, and against the next problem's, which has to be wrong unless the two are equal; our graders and math-verify
alone. Then pairs of formulas that are equal or not by the policies of `tba_hpc/grading/__init__.py`.

    .venv/bin/python tools/check_grading.py DATA_DIR

DATA_DIR holds gsm8k_train.jsonl and gsm8k_test.jsonl (question, answer), math500_test.jsonl (problem, solution,
answer). Prints every mistake of our graders, and one JSON object on the last line."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import math_verify

from tba_hpc.grading.gsm8k import grade_number
from tba_hpc.grading.latex import normalise
from tba_hpc.grading.mathematics import MathGrader
from tba_hpc.grading.numbers import parse_number

LENIENT = (
    ("52_8", "52_9"),
    ("2k", "2K"),
    (r"\frac{1}{3}", "0.333333"),
    (r"\pi", "3.1415927"),
    (r"\sqrt{2}", "1.414214"),
    ("0.0000001", "0.0"),
    ("0.5", r"50\%"),
    ("10:30", "1:3"),
    ("(-2,1)", "-2,1"),
    ("1,-2", "1,-2,-2"),
    ("1", "1,1"),
    (r"\text{no}", "on"),
    ("6", "3!"),
    ("5", "2+3"),
    (r"\frac{\pi}{6}", r"\arctan\frac{1}{\sqrt{3}}"),
)
"""A right answer and one that differs."""
STRICT = (
    ("-5", "−5"),
    ("4", "４"),
    ("1000", "1e3"),
    (r"\sqrt{51}", "√51"),
    ("4", r"\fbox{4}"),
    (r"(2,\infty)", "x>2"),
    ("1080", "1\u202f080"),
    (r"\frac{1}{3}", r"0.\overline{3}"),
)
"""A right answer and the same in other signs."""


@dataclass(frozen=True, slots=True)
class Data:
    name: str
    solutions: list[str]
    answers: list[str]

    @property
    def next_answers(self) -> list[str]:
        return [*self.answers[1:], self.answers[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir", type=Path)
    folder = parser.parse_args().data_dir
    logging.disable()  # math-verify tells of every formula that it cannot read
    metrics: dict[str, int] = {}
    for name in ("gsm8k_train", "gsm8k_test"):
        metrics |= check(read_gsm8k(folder, name), None)
    with MathGrader() as grader:
        metrics |= check(read_math(folder), grader)
        for name, pairs, equal in (("different", LENIENT, False), ("same", STRICT, True)):
            right, given = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            responses = [text if "box" in text else rf"\boxed{{{text}}}" for text in given]
            ours = [verdict.correct for verdict in grader.grade(responses, right)]
            metrics[f"hand_made_{name}"] = len(pairs)
            metrics[f"hand_made_{name}_wrong"] = sum(correct != equal for correct in ours)
            metrics[f"hand_made_{name}_wrong_math_verify"] = sum(
                correct != equal for correct in alone(responses, right)
            )
    print(json.dumps({"benchmark": "check_grading", "metrics": metrics}))


def check(data: Data, grader: MathGrader | None) -> dict[str, int]:
    """Counts of wrong verdicts."""
    ours, equal = grade(data.solutions, data.answers, grader), equal_to_next(data)
    ours_next = grade(data.solutions, data.next_answers, grader)
    for i in range(len(ours)):
        if not ours[i] or ours_next[i] != equal[i]:
            print(f"{data.name} {i}: {data.solutions[i][-80:]!r} own {data.answers[i]!r} next {data.next_answers[i]!r}")
    theirs, theirs_next = alone_with_next(data)
    return {
        f"{data.name}_problems": len(ours),
        f"{data.name}_own_wrong": ours.count(False),
        f"{data.name}_next_equal": equal.count(True),
        f"{data.name}_next_wrong": count_differences(ours_next, equal),
        f"{data.name}_own_wrong_math_verify": theirs.count(False),
        f"{data.name}_next_wrong_math_verify": count_differences(theirs_next, equal),
    }


def grade(responses: Sequence[str], answers: Sequence[str], grader: MathGrader | None) -> list[bool]:
    if grader is not None:
        return [verdict.correct for verdict in grader.grade(responses, answers)]
    return [grade_number(response, answer).correct for response, answer in zip(responses, answers, strict=True)]


def alone(responses: Sequence[str], answers: Sequence[str]) -> list[bool]:
    """What math-verify says of whole responses, in the way its documentation recommends."""
    right = [math_verify.parse(f"${answer}$") for answer in answers]
    given = [math_verify.parse(response) for response in responses]
    return [bool(math_verify.verify(*pair)) for pair in zip(right, given, strict=True)]


def alone_with_next(data: Data) -> tuple[list[bool], list[bool]]:
    """The same for own and for next answers; each text is parsed once."""
    right = [math_verify.parse(f"${answer}$") for answer in data.answers]
    given = [math_verify.parse(solution) for solution in data.solutions]
    own = [bool(math_verify.verify(*pair)) for pair in zip(right, given, strict=True)]
    following = [bool(math_verify.verify(*pair)) for pair in zip([*right[1:], right[0]], given, strict=True)]
    return own, following


def equal_to_next(data: Data) -> list[bool]:
    """Whether two answers are equal, judged by their text alone: 1,080 is 1080, and x=5 is 5."""
    plain = [normalise(answer).rpartition("=")[2] for answer in data.answers]
    values = [parse_number(text) or text for text in plain]
    return [own == following for own, following in zip(values, [*values[1:], values[0]], strict=True)]


def count_differences(some: Sequence[bool], others: Sequence[bool]) -> int:
    return sum(one != other for one, other in zip(some, others, strict=True))


def read_gsm8k(folder: Path, name: str) -> Data:
    solutions = [row["answer"] for row in read_rows(folder / f"{name}.jsonl")]
    return Data(name, solutions, [solution.rpartition("####")[2].strip() for solution in solutions])


def read_math(folder: Path) -> Data:
    rows = read_rows(folder / "math500_test.jsonl")
    return Data("math500_test", [row["solution"] for row in rows], [row["answer"] for row in rows])


def read_rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
