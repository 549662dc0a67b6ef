"""VarGrad Trajectory Balance against its NumPy twin, its closed-form gradient and its optimum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import twin_tb_vargrad as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tba_hpc.config import ObjectiveConfig
from tba_hpc.objectives import OBJECTIVES, LossInputs, Objective
from tba_hpc.schedules import Constant


def objective(**options) -> Objective:
    return OBJECTIVES["tb_vargrad"](ObjectiveConfig(beta=Constant(value=1.0), **options))


OBJECTIVE = objective()


@dataclass
class Case:
    """Random trajectories in float64, rows of a group anywhere."""

    logprobs: NDArray[np.float64]
    reference: NDArray[np.float64]
    mask: NDArray[np.bool_]
    behavior: NDArray[np.float64]
    rewards: NDArray[np.float64]
    group_ids: NDArray[np.int64]
    beta: float

    def tensors(self) -> tuple[torch.Tensor, LossInputs]:
        """Differentiable log-probabilities, and the rest with padding that would spoil any sum it entered."""
        garbage = np.resize([-np.inf, np.nan, 1e30], self.mask.shape)
        reference = torch.tensor(np.where(self.mask, self.reference, garbage), dtype=torch.float32)
        inputs = LossInputs(
            rewards=torch.tensor(self.rewards, dtype=torch.float32),
            reference_logprobs=reference,
            behavior_logprobs=torch.tensor(np.where(self.mask, self.behavior, garbage), dtype=torch.float32),
            mask=torch.tensor(self.mask),
            group_ids=torch.tensor(self.group_ids),
        )
        logprobs = torch.tensor(np.where(self.mask, self.logprobs, garbage), dtype=torch.float32, requires_grad=True)
        return logprobs, inputs

    @property
    def kappa(self) -> NDArray[np.float64]:
        return twin.kappa(self.logprobs, self.reference, self.mask)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    group_ids = rng.permutation(np.repeat(rng.choice(100, len(sizes), replace=False), sizes))
    n, width = len(group_ids), draw(st.integers(0, 6))
    return Case(
        logprobs=-rng.exponential(1.0, (n, width)),
        reference=-rng.exponential(1.0, (n, width)),
        behavior=-rng.exponential(1.0, (n, width)),
        mask=np.arange(width) < rng.integers(0, width + 1, n)[:, None],
        rewards=rng.normal(0, 1, n),
        group_ids=group_ids,
        beta=draw(st.sampled_from([0.01, 0.1, 1.0])),
    )


def close(actual: torch.Tensor, expected: NDArray[np.float64], scale: float = 1.0) -> None:
    """Equal to 1e-5, relative to the size of the terms that cancel."""
    np.testing.assert_allclose(actual.detach().numpy() / scale, expected / scale, atol=1e-5, rtol=1e-5)


@given(cases())
@settings(max_examples=100, deadline=None)
def test_equals_the_twin(case: Case) -> None:
    logprobs, inputs = case.tensors()
    context = OBJECTIVE.group_context(logprobs.detach(), inputs, case.beta)
    loss, metrics = OBJECTIVE.loss(logprobs, inputs, context, case.beta)
    delta = twin.residual(case.rewards, case.kappa, case.group_ids, case.beta)
    size = max(1.0, float(np.abs(case.rewards).max()) / case.beta)

    close(context, twin.log_z(case.rewards, case.kappa, case.group_ids, case.beta), size)
    close(loss, case.beta / 2 * delta**2, size**2 * case.beta)
    assert set(metrics) == set(OBJECTIVE.metric_names)
    close(metrics["log_z"], twin.log_z(case.rewards, case.kappa, case.group_ids, case.beta), size)
    close(metrics["residual"], np.abs(delta) * case.beta)
    close(metrics["log_ratio"], case.kappa)
    close(metrics["tb_loss"], delta**2, size**2)
    assert not any(value.requires_grad for value in (context, *metrics.values()))


@given(cases())
@settings(max_examples=100, deadline=None)
def test_gradient_is_minus_the_advantage_and_ignores_padding(case: Case) -> None:
    logprobs, inputs = case.tensors()
    context = OBJECTIVE.group_context(logprobs.detach(), inputs, case.beta)
    OBJECTIVE.loss(logprobs, inputs, context, case.beta)[0].sum().backward()
    advantage = twin.advantage(case.rewards, case.kappa, case.group_ids, case.beta)
    assert logprobs.grad is not None
    close(logprobs.grad, np.where(case.mask, -advantage[:, None], 0.0))


@given(cases(), st.sampled_from([0.0, 0.5, 8.0]), st.sampled_from([0.3, 1.0, 10.0]))
@settings(max_examples=100, deadline=None)
def test_bounds_on_tokens_equal_the_twin(case: Case, ratio: float, limit: float) -> None:
    bounded = objective(importance_ratio=(ratio / 4, ratio + 1), log_ratio_limit=limit)
    logprobs, inputs = case.tensors()
    context = bounded.group_context(logprobs.detach(), inputs, case.beta)
    loss, metrics = bounded.loss(logprobs, inputs, context, case.beta)
    loss.sum().backward()
    kappa = twin.kappa(case.logprobs, case.reference, case.mask, limit)
    delta = twin.residual(case.rewards, kappa, case.group_ids, case.beta)
    size = max(1.0, float(np.abs(case.rewards).max()) / case.beta)
    close(loss, case.beta / 2 * delta**2, size**2 * case.beta)
    close(metrics["log_ratio"], kappa)
    advantage = twin.advantage(case.rewards, kappa, case.group_ids, case.beta)
    weights = twin.importance_ratio(case.logprobs, case.behavior, ratio / 4, ratio + 1)
    assert logprobs.grad is not None
    close(logprobs.grad, np.where(case.mask, -advantage[:, None] * weights, 0.0), ratio + 1)


@given(cases())
@settings(max_examples=20, deadline=None)
def test_on_policy_no_bound_is_felt(case: Case) -> None:
    case.behavior, case.reference = case.logprobs, case.logprobs + 0.5
    gradients = []
    for each in (OBJECTIVE, objective(importance_ratio=(0.0, 8.0), log_ratio_limit=10.0)):
        logprobs, inputs = case.tensors()
        each.loss(logprobs, inputs, each.group_context(logprobs.detach(), inputs, case.beta), case.beta)[
            0
        ].sum().backward()
        gradients.append(logprobs.grad)
    torch.testing.assert_close(*gradients)


@given(cases())
@settings(max_examples=50, deadline=None)
def test_loss_of_some_rows_is_that_within_the_whole(case: Case) -> None:
    logprobs, inputs = case.tensors()
    context = OBJECTIVE.group_context(logprobs.detach(), inputs, case.beta)
    whole, _ = OBJECTIVE.loss(logprobs, inputs, context, case.beta)
    rows = torch.arange(0, len(whole), 2)
    part = LossInputs(
        inputs.rewards[rows],
        inputs.reference_logprobs[rows],
        inputs.behavior_logprobs[rows],
        inputs.mask[rows],
        inputs.group_ids[rows],
    )
    assert torch.equal(OBJECTIVE.loss(logprobs[rows], part, context[rows], case.beta)[0], whole[rows])


def test_no_loss_where_the_policy_is_the_posterior() -> None:
    """Four one-token responses with π_θ ∝ π_ref · exp(r/β); log Ẑ is then the true log Z."""
    beta, rewards = 0.5, torch.tensor([0.0, 1.0, -1.0, 0.3])
    reference = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    log_z = torch.logsumexp(reference + rewards / beta, 0)
    posterior = reference + rewards / beta - log_z
    inputs = LossInputs(
        rewards, reference[:, None], reference[:, None], torch.ones(4, 1, dtype=torch.bool), torch.zeros(4).long()
    )
    context = OBJECTIVE.group_context(posterior[:, None], inputs, beta)
    loss, _ = OBJECTIVE.loss(posterior[:, None], inputs, context, beta)
    torch.testing.assert_close(context, log_z.expand(4))
    torch.testing.assert_close(loss, torch.zeros(4), atol=1e-10, rtol=0)


def test_equal_rewards_at_the_reference_teach_nothing() -> None:
    logprobs = torch.tensor([[-1.0, -2.0], [-3.0, -0.5]], requires_grad=True)
    inputs = LossInputs(
        rewards=torch.tensor([7.0, 7.0]),
        reference_logprobs=logprobs.detach(),
        behavior_logprobs=logprobs.detach(),
        mask=torch.ones(2, 2, dtype=torch.bool),
        group_ids=torch.zeros(2).long(),
    )
    context = OBJECTIVE.group_context(logprobs.detach(), inputs, 0.1)
    loss, _ = OBJECTIVE.loss(logprobs, inputs, context, 0.1)
    loss.sum().backward()
    assert (loss == 0).all()
    assert logprobs.grad is not None
    assert (logprobs.grad == 0).all()


def test_two_responses_pull_by_half_their_difference() -> None:
    """K = 2, and one response empty: it has no token to push."""
    logprobs = torch.tensor([[-1.0], [-9.0]], requires_grad=True)
    inputs = LossInputs(
        rewards=torch.tensor([1.0, 0.0]),
        reference_logprobs=torch.tensor([[-1.0], [torch.nan]]),
        behavior_logprobs=torch.zeros(2, 1),
        mask=torch.tensor([[True], [False]]),
        group_ids=torch.tensor([5, 5]),
    )
    context = OBJECTIVE.group_context(logprobs.detach(), inputs, 0.02)
    OBJECTIVE.loss(logprobs, inputs, context, 0.02)[0].sum().backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([[-0.5], [0.0]]))


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan")])
def test_beta_must_be_positive(beta: float) -> None:
    logprobs, inputs = torch.zeros(1, 1), _one_row()
    with pytest.raises(ValueError, match="above 0"):
        OBJECTIVE.group_context(logprobs, inputs, beta)
    with pytest.raises(ValueError, match="above 0"):
        OBJECTIVE.loss(logprobs, inputs, torch.zeros(1), beta)


def _one_row() -> LossInputs:
    zeros = torch.zeros(1, 1)
    return LossInputs(torch.zeros(1), zeros, zeros, torch.ones(1, 1, dtype=torch.bool), torch.zeros(1).long())
