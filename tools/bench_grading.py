"""How long grading takes: 10,000 answers, half to GSM8K's kind of problem and half to MATH's, right, wrong in the usual
ways, and now and then hostile or costly; in batches of 100, as searchers grade.

    .venv/bin/python tools/bench_grading.py [--quick]

Prints a row a kind, and one JSON object on the last line."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version

from tba_hpc.grading.gsm8k import grade_number
from tba_hpc.grading.mathematics import MathGrader
from tba_hpc.grading.verdict import Verdict

BATCH = 100
SECONDS_PER_ANSWER = 2.0
HOSTILE = ("9**9**9", "9^{9^9}", "__import__('os').system('true')", "0x10", "1_0", "", "\\boxed{" * 50, "9" * 10_000)
COSTLY = (r"\boxed{(1+x_1+y+z)^{500}}", r"\boxed{x^{9^{99}}}")
STEPS = "She sold 48/2 = <<48/2=24>>24 clips in May and 48+24 = <<48+24=72>>72 altogether.\n" * 4
FORMULAS = ("{a}k+{b}", "k^2+{a}k-{b}", r"{a}\sqrt{{{b}}}", r"({a},\frac{{\pi}}{{{b}}})", r"\frac{{{a}\pi}}{{{b}}}")
SAME_FORMULAS = ("{b}+{a}k", "-{b}+k(k+{a})", r"\sqrt{{{b}}}\cdot {a}", r"({a},\pi/{b})", r"\pi\cdot{a}/{b}")

Problem = tuple[str, str]
"""Response and right answer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    answers = 1_000 if parser.parse_args().quick else 10_000
    draw = random.Random(0)
    numbers = [number_problem(draw, i) for i in range(answers // 2)]
    formulas = [formula_problem(draw, i) for i in range(answers // 2)]
    with MathGrader(seconds_per_answer=SECONDS_PER_ANSWER) as grader:
        start_seconds = seconds(lambda: grader.grade([r"\boxed{1+x}"], ["x+1"]))[0]
        results = {
            "gsm8k": measure(numbers, grade_numbers),
            "math": measure(formulas, grader.grade),
        }
    metrics: dict[str, float] = {"answers": answers, "worker_start_seconds": start_seconds}
    for name, (durations, correct) in results.items():
        metrics |= {f"{name}_seconds": sum(durations), f"{name}_longest_batch_seconds": max(durations)}
        metrics[f"{name}_right"] = correct
        print(f"{name}: {sum(durations):.2f} s, longest batch {max(durations):.2f} s, {correct} right", flush=True)
    metrics["seconds"] = metrics["gsm8k_seconds"] + metrics["math_seconds"]
    versions = {"python": platform.python_version(), "math-verify": version("math-verify")}
    machine = {"cores": os.cpu_count(), "architecture": platform.machine()}
    print(json.dumps({"benchmark": "grading", "machine": machine, "versions": versions, "metrics": metrics}))


def number_problem(draw: random.Random, i: int) -> Problem:
    right = draw.randrange(1, 100_000)
    given = right if i % 2 else draw.randrange(1, 100_000)
    if i % 50 == 0:
        return f"{STEPS}#### {HOSTILE[i // 50 % len(HOSTILE)]}", str(right)
    forms = (f"{STEPS}#### {given:,}", f"{STEPS}So {given}, altogether.", f"{STEPS}The answer is ${given}.00.")
    return forms[i % len(forms)], str(right)


def formula_problem(draw: random.Random, i: int) -> Problem:
    """As in MATH, two in three answers are numbers."""
    a, b = draw.randrange(2, 100), draw.randrange(2, 100)
    if i % 500 == 0:
        return COSTLY[i // 500 % len(COSTLY)], f"{a}x+{b}"
    if i % 50 == 0:
        return rf"\boxed{{{HOSTILE[i // 50 % len(HOSTILE)]}}}", f"{a}x+{b}"
    given = (a, b) if i % 2 else (b, a)
    if i % 3:
        return rf"{STEPS}\boxed{{\frac{{{given[0]}}}{{{given[1]}}}}}", rf"\dfrac{{{a}}}{{{b}}}"
    kind = i // 3 % len(FORMULAS)
    answer = (FORMULAS, SAME_FORMULAS)[i % 2][kind].format(a=given[0], b=given[1])
    return rf"{STEPS}\boxed{{{answer}}}", FORMULAS[kind].format(a=a, b=b)


def grade_numbers(responses: Sequence[str], answers: Sequence[str]) -> list[Verdict]:
    return [grade_number(response, answer) for response, answer in zip(responses, answers, strict=True)]


def measure(
    problems: Sequence[Problem], grade: Callable[[Sequence[str], Sequence[str]], list[Verdict]]
) -> tuple[list[float], int]:
    """Seconds of each batch, and how many are right."""
    durations, correct = [], 0
    for batch in batches(problems):
        taken, verdicts = seconds(lambda batch=batch: grade([p[0] for p in batch], [p[1] for p in batch]))
        durations.append(taken)
        correct += sum(verdict.correct for verdict in verdicts)
    return durations, correct


def batches(problems: Sequence[Problem]) -> Iterator[Sequence[Problem]]:
    for start in range(0, len(problems), BATCH):
        yield problems[start : start + BATCH]


def seconds(action: Callable[[], list[Verdict]]) -> tuple[float, list[Verdict]]:
    started = time.perf_counter()
    result = action()
    return time.perf_counter() - started, result


if __name__ == "__main__":
    main()
