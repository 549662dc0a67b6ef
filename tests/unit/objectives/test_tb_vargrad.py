"""VarGrad Trajectory Balance against its NumPy twin, its closed-form gradient and its optimum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import twin_tb_vargrad as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_cases import Array, Case, cases, close, make

from tba_hpc.objectives import LossInputs

OBJECTIVE = make("tb_vargrad")


def kappa(case: Case) -> Array:
    return twin.kappa(case.logprobs, case.reference, case.mask)


@given(cases())
@settings(max_examples=100, deadline=None)
def test_equals_the_twin(case: Case) -> None:
    logprobs, inputs = case.tensors()
    context = OBJECTIVE.group_context(logprobs.detach(), inputs, case.beta)
    loss, metrics = OBJECTIVE.loss(logprobs, inputs, context, case.beta)
    delta = twin.residual(case.rewards, kappa(case), case.group_ids, case.beta)
    size = max(1.0, float(np.abs(case.rewards).max()) / case.beta)

    close(context[:, 0], twin.log_z(case.rewards, kappa(case), case.group_ids, case.beta), size)
    close(loss, case.beta / 2 * delta**2, size**2 * case.beta)
    assert set(metrics) == set(OBJECTIVE.metric_names)
    close(metrics["log_z"], twin.log_z(case.rewards, kappa(case), case.group_ids, case.beta), size)
    close(metrics["residual"], np.abs(delta) * case.beta)
    close(metrics["log_ratio"], kappa(case))
    close(metrics["tb_loss"], delta**2, size**2)
    assert not any(value.requires_grad for value in (context, *metrics.values()))


@given(cases())
@settings(max_examples=100, deadline=None)
def test_gradient_is_minus_the_advantage_and_ignores_padding(case: Case) -> None:
    logprobs, inputs = case.tensors()
    context = OBJECTIVE.group_context(logprobs.detach(), inputs, case.beta)
    OBJECTIVE.loss(logprobs, inputs, context, case.beta)[0].sum().backward()
    advantage = twin.advantage(case.rewards, kappa(case), case.group_ids, case.beta)
    assert logprobs.grad is not None
    close(logprobs.grad, np.where(case.mask, -advantage[:, None], 0.0))


@given(cases(), st.sampled_from([0.0, 0.5, 8.0]), st.sampled_from([0.3, 1.0, 10.0]))
@settings(max_examples=100, deadline=None)
def test_bounds_on_tokens_equal_the_twin(case: Case, ratio: float, limit: float) -> None:
    bounded = make("tb_vargrad", importance_ratio=(ratio / 4, ratio + 1), log_ratio_limit=limit)
    logprobs, inputs = case.tensors()
    context = bounded.group_context(logprobs.detach(), inputs, case.beta)
    loss, metrics = bounded.loss(logprobs, inputs, context, case.beta)
    loss.sum().backward()
    limited = twin.kappa(case.logprobs, case.reference, case.mask, limit)
    delta = twin.residual(case.rewards, limited, case.group_ids, case.beta)
    size = max(1.0, float(np.abs(case.rewards).max()) / case.beta)
    close(loss, case.beta / 2 * delta**2, size**2 * case.beta)
    close(metrics["log_ratio"], limited)
    advantage = twin.advantage(case.rewards, limited, case.group_ids, case.beta)
    weights = twin.importance_ratio(case.logprobs, case.behavior, ratio / 4, ratio + 1)
    assert logprobs.grad is not None
    close(logprobs.grad, np.where(case.mask, -advantage[:, None] * weights, 0.0), ratio + 1)


@given(cases())
@settings(max_examples=20, deadline=None)
def test_on_policy_no_bound_is_felt(case: Case) -> None:
    case.behavior, case.reference = case.logprobs, case.logprobs + 0.5
    gradients = []
    for each in (OBJECTIVE, make("tb_vargrad", importance_ratio=(0.0, 8.0), log_ratio_limit=10.0)):
        logprobs, inputs = case.tensors()
        each.loss(logprobs, inputs, each.group_context(logprobs.detach(), inputs, case.beta), case.beta)[
            0
        ].sum().backward()
        gradients.append(logprobs.grad)
    torch.testing.assert_close(*gradients)


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
    torch.testing.assert_close(context, log_z.expand(4, 1))
    torch.testing.assert_close(loss, torch.zeros(4), atol=1e-10, rtol=0)


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
        OBJECTIVE.loss(logprobs, inputs, torch.zeros(1, 1), beta)


def _one_row() -> LossInputs:
    zeros = torch.zeros(1, 1)
    return LossInputs(torch.zeros(1), zeros, zeros, torch.ones(1, 1, dtype=torch.bool), torch.zeros(1).long())
