"""Countdown problems drawn at random, and expressions that solve them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from tba_hpc.grading.expression import Expression, combine, literal
from tba_hpc.settings import ConfigError, Integer, PositiveInt, Settings

Problem = tuple[tuple[int, ...], int]
"""Numbers and target."""

MOST_NUMBERS = 4
"""In a drawn problem, and in one whose solution is searched: there are some thousand expressions of four numbers, and
some million of six."""

_ROUND = 20_000
"""Problems drawn at a time, for each number of numbers."""
_ROUNDS = 10


class DrawnProblems(Settings):
    """Which problems are drawn; each can be solved, is in one split only, and has its numbers in rising order."""

    min_numbers: Integer = Field(3, ge=2, le=MOST_NUMBERS)
    max_numbers: Integer = Field(4, ge=2, le=MOST_NUMBERS)
    """A problem has this many numbers at most."""
    max_number: Integer = Field(99, ge=2, le=999)
    """Numbers go from 1 to this."""
    min_target: Integer = Field(10, ge=0)
    max_target: Integer = Field(100, ge=0)
    train_problems: PositiveInt = 10_000
    test_problems: PositiveInt = 1_000
    seed: int = Field(0, ge=0, lt=2**32)

    @model_validator(mode="after")
    def _ordered(self) -> DrawnProblems:
        for low, high in (("min_numbers", "max_numbers"), ("min_target", "max_target")):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low} = {getattr(self, low)} is above {high} = {getattr(self, high)}")
        return self


def draw(settings: DrawnProblems) -> tuple[list[Problem], list[Problem]]:
    """Those to learn from and those to evaluate on, each in random order. Raises `ConfigError` where there are too few.

    Drawn by `RandomState`, whose stream NumPy promises never to change: a problem keeps its id for good."""
    random, found = np.random.RandomState(settings.seed), dict[Problem, None]()
    needed = settings.train_problems + settings.test_problems
    for _ in range(_ROUNDS):
        for n in range(settings.min_numbers, settings.max_numbers + 1):
            found |= dict.fromkeys(_draw_some(n, settings, random))
        if len(found) >= needed:
            problems = list(found)
            chosen = [problems[i] for i in random.permutation(len(problems))[:needed]]
            return chosen[settings.test_problems :], chosen[: settings.test_problems]
    raise ConfigError(
        f"task.options.drawn: train_problems + test_problems = {needed}, but only {len(found)} different problems were "
        "found; ask for fewer, or allow more numbers, larger ones or more targets"
    )


def _draw_some(n: int, settings: DrawnProblems, random: np.random.RandomState) -> Iterator[Problem]:
    """Problems of `n` numbers."""
    numbers = random.randint(1, settings.max_number + 1, size=(_ROUND, n))
    values = _random_values(numbers, random)
    fits = (settings.min_target <= values) & (values <= settings.max_target)
    rows, targets = np.sort(numbers[fits], axis=1).tolist(), values[fits].tolist()
    return ((tuple(row), target) for row, target in zip(rows, targets, strict=True))


def _random_values(numbers: NDArray[np.int64], random: np.random.RandomState) -> NDArray[np.int64]:
    """What random operators make of each row of `numbers [M, N]` from left to right, `[M]`; -1 where a division leaves
    a remainder. Differences and quotients are of the larger number and the smaller one."""
    value, whole = numbers[:, 0], np.ones(len(numbers), bool)
    for number in numbers[:, 1:].T:
        operator = random.randint(4, size=len(numbers))
        large, small = np.maximum(value, number), np.minimum(value, number)
        quotient, remainder = np.divmod(large, np.maximum(small, 1))
        whole &= (operator != 3) | ((remainder == 0) & (small > 0))
        value = np.choose(operator, [large + small, large - small, large * small, quotient])
    return np.where(whole, value, -1)


def solution(problem: Problem) -> str | None:
    """The shortest expression that reaches the target: of sums alone, or else of sums and products, or else of all.
    None if there is none."""
    numbers, target = problem
    for operators in ("+-", "+-*", "+-*/"):
        solutions = [found for found in expressions(numbers, operators) if found.value == target]
        if solutions:
            return min(solutions, key=_simplicity).text
    return None


def expressions(numbers: Sequence[int], operators: str) -> Iterator[Expression]:
    """Every expression that uses all of `numbers`, and no others than `operators`. Of what differs in the order of sums
    and products alone there is one at least. Nothing on the way is below 0: no value ≥ 0 has need of it."""
    return _combined([literal(number) for number in numbers], operators)


def _combined(terms: list[Expression], operators: str) -> Iterator[Expression]:
    if len(terms) == 1:
        yield terms[0]
    for i, j in combinations(range(len(terms)), 2):
        rest = [term for k, term in enumerate(terms) if k not in (i, j)]
        for joined in _pairs(terms[i], terms[j], operators):
            yield from _combined([joined, *rest], operators)


def _pairs(a: Expression, b: Expression, operators: str) -> Iterator[Expression]:
    large, small = (a, b) if a.value >= b.value else (b, a)
    orders = {"+": [(a, b)], "-": [(large, small)], "*": [(a, b)], "/": [(a, b), (b, a)]}
    for operator in operators:
        for left, right in orders[operator]:
            if operator != "/" or right.value != 0:
                yield combine(left, operator, right)


def _simplicity(expression: Expression) -> tuple[int, str]:
    return len(expression.text), expression.text
