"""Every objective against its NumPy twin, and the twin's gradient against differences of its loss."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
import twin_dr_grpo
import twin_grpo
import twin_kimi
import twin_online_dpo
import twin_proximal_rloo
import twin_reinforce
import twin_rloo
import twin_sft
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_cases import Array, Case, cases, close, make, outcome, rows_of

from tba_hpc.objectives import OBJECTIVES

TWINS = {
    "reinforce": twin_reinforce,
    "rloo": twin_rloo,
    "proximal_rloo": twin_proximal_rloo,
    "grpo": twin_grpo,
    "dr_grpo": twin_dr_grpo,
    "online_dpo": twin_online_dpo,
    "kimi": twin_kimi,
    "sft": twin_sft,
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in TWINS),
    *((name, {"clip": clip}) for name in ("proximal_rloo", "grpo", "dr_grpo") for clip in ((0.1, 0.5), (1.0, np.inf))),
    ("sft", {"min_reward": 0.0}),
]
every_variant = pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=[f"{name} {options or ''}".strip() for name, options in VARIANTS]
)


def largest_ratio(case: Case) -> float:
    """Of π_θ to π_behavior and of π_ref to π_θ: what a rounding error of an advantage may be multiplied with."""
    importance = np.where(case.mask, case.logprobs - case.behavior, 0.0).sum(axis=1)
    inverse = np.where(case.mask, case.reference - case.logprobs, 0.0)
    return float(np.exp(max(0.0, importance.max(initial=0.0), inverse.max(initial=0.0))))


def size_of(expected: Array, name: str, case: Case) -> float:
    ratio = largest_ratio(case) if name in ("proximal_rloo", "grpo", "dr_grpo") else 1.0
    return max(ratio, float(np.abs(expected).max(initial=0.0)))


def test_every_objective_has_a_twin() -> None:
    assert {*TWINS, "tb_vargrad"} == set(OBJECTIVES)


@every_variant
@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_value_gradient_and_metrics_equal_the_twin(name: str, options: dict[str, Any], case: Case) -> None:
    objective, twin = make(name, **options), TWINS[name]
    found = outcome(objective, case)
    of_twin = twin.metrics(case, **options)
    assert set(found.metrics) == set(of_twin) == set(objective.metric_names)
    for actual, expected in (
        (found.loss, twin.loss(case, case.logprobs, **options)),
        (found.gradient, twin.gradient(case, **options)),
        *((found.metrics[metric], values) for metric, values in of_twin.items()),
    ):
        close(actual, expected, size_of(expected, name, case))
    assert found.context.shape == (len(case.rewards), len(objective.context_names))
    assert not any(value.requires_grad for value in (found.context, *found.metrics.values()))


@every_variant
@given(case=cases(narrowest=1))
@settings(max_examples=5, deadline=None)
def test_gradient_of_the_twin_is_that_of_its_loss(name: str, options: dict[str, Any], case: Case) -> None:
    """By central differences of the summed losses, in which the two rows of a pair are coupled."""
    twin, step = TWINS[name], 1e-5

    def total(logprobs: Array) -> float:
        return float(twin.loss(case, logprobs, **options).sum())

    numeric = np.zeros(case.logprobs.shape)
    for index in zip(*np.nonzero(case.mask), strict=True):
        shift = np.zeros(case.logprobs.shape)
        shift[index] = step
        numeric[index] = (total(case.logprobs + shift) - total(case.logprobs - shift)) / (2 * step)
    np.testing.assert_allclose(numeric, twin.gradient(case, **options), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
@given(case=cases(), parts=st.integers(2, 3))
@settings(max_examples=20, deadline=None)
def test_rows_of_a_group_may_come_one_part_at_a_time(name: str, case: Case, parts: int) -> None:
    """Losses, metrics and gradients are those within the whole."""
    objective, whole = make(name), outcome(make(name), case)
    for first in range(parts):
        rows = torch.arange(len(case.rewards))[first::parts]
        logprobs, inputs = case.tensors()
        loss, metrics = objective.loss(logprobs[rows], rows_of(inputs, rows), whole.context[rows], case.beta)
        loss.sum().backward()
        assert torch.equal(loss, whole.loss[rows])
        assert all(torch.equal(metrics[metric], values[rows]) for metric, values in whole.metrics.items())
        assert logprobs.grad is not None
        assert torch.equal(logprobs.grad[rows], whole.gradient[rows])


@pytest.mark.parametrize("name", OBJECTIVES)
@given(case=cases())
@settings(max_examples=20, deadline=None)
def test_padding_gets_no_gradient(name: str, case: Case) -> None:
    assert (outcome(make(name), case).gradient[~torch.tensor(case.mask)] == 0).all()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_says_where_it_comes_from_and_what_its_columns_are(name: str) -> None:
    text = inspect.getdoc(inspect.getmodule(OBJECTIVES[name]))
    assert text is not None
    assert "arXiv" in text


@pytest.mark.parametrize("name", ["proximal_rloo", "grpo", "dr_grpo"])
@pytest.mark.parametrize("gap", [-1000.0, 1000.0])
@pytest.mark.parametrize("better", [0, 1])
def test_a_policy_far_from_the_data_spoils_no_step(name: str, gap: float, better: int) -> None:
    """e¹⁰⁰⁰ is infinite, whichever of policy and data it is in favour of, and whichever response is better."""
    zeros, rewards = np.zeros((2, 1)), np.array([0.0, 0.0])
    rewards[better] = 1.0
    far = np.array([[gap], [0.0]])
    case = Case(zeros, far, np.ones((2, 1), bool), far, rewards, np.zeros(2, np.int64), beta=0.1)
    found = outcome(make(name), case)
    assert torch.isfinite(found.loss).all()
    assert torch.isfinite(found.gradient).all()
