"""What theory says of one objective against another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_cases import Array, Case, cases, make, outcome
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

from tba_hpc.objectives import OBJECTIVES, LossInputs

whole_responses = cases(narrowest=1).map(Case.whole_responses).filter(lambda case: len(case.rewards) > 0)


def gradient(name: str, case: Case, **options: object) -> Array:
    return outcome(make(name, **options), case).gradient.double().numpy()


def of_groups(case: Case, statistic: Callable[[Array], float], values: Array) -> Array:
    """The statistic of the group of each row, `[N, 1]`."""
    return np.array([[statistic(values[case.group_ids == group])] for group in case.group_ids])


def equal(actual: Array, expected: Array) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@given(cases())
@settings(max_examples=40, deadline=None)
def test_on_policy_trajectory_balance_is_reinforce_with_a_mean_baseline_and_the_kl_in_the_reward(case: Case) -> None:
    """Off-policy it is not: its κ goes with the policy."""
    equal(gradient("tb_vargrad", case.on_policy()), gradient("reinforce", case.on_policy()))
    moved = np.where(case.mask, case.logprobs - case.behavior, 0.0).sum(axis=1)
    difference = case.beta * (moved[:, None] - of_groups(case, np.mean, moved)) * case.mask
    equal(gradient("tb_vargrad", case) - gradient("reinforce", case), difference)


@given(whole_responses)
@settings(max_examples=40, deadline=None)
def test_rloo_is_reinforce_but_for_the_number_of_responses(case: Case) -> None:
    size = of_groups(case, len, case.rewards)
    equal(gradient("rloo", case), size / (size - 1) * gradient("reinforce", case))


@given(cases())
@settings(max_examples=40, deadline=None)
def test_proximal_rloo_is_rloo_on_policy(case: Case) -> None:
    equal(gradient("proximal_rloo", case.on_policy()), gradient("rloo", case.on_policy()))


@given(cases())
@settings(max_examples=40, deadline=None)
def test_proximal_rloo_without_clipping_is_rloo_with_importance_weights(case: Case) -> None:
    ratio = np.exp(np.where(case.mask, case.logprobs - case.behavior, 0.0).sum(axis=1, keepdims=True))
    weighted = ratio * gradient("rloo", case)
    free = gradient("proximal_rloo", case, clip=(1.0, np.inf))
    np.testing.assert_allclose(free / ratio, weighted / ratio, rtol=1e-4, atol=1e-5)


@given(whole_responses)
@settings(max_examples=40, deadline=None)
def test_grpo_without_its_normalisations_is_dr_grpo(case: Case) -> None:
    """Both normalisations multiply what comes of the reward, that of the length alone what comes of the KL term."""
    length = case.mask.sum(axis=1, keepdims=True)
    deviation = of_groups(case, lambda rewards: float(rewards.std(ddof=1)), case.rewards) + 1e-4
    of_reward, of_kl = replace(case, beta=0.0), replace(case, rewards=np.zeros_like(case.rewards))
    for part, normalisation in ((of_reward, length * deviation), (of_kl, length)):
        expected = gradient("dr_grpo", part)
        size = max(1.0, float(np.abs(expected).max()))
        equal(normalisation * gradient("grpo", part) / size, expected / size)
    equal(gradient("dr_grpo", case), gradient("dr_grpo", of_reward) + gradient("dr_grpo", of_kl))


@given(cases())
@settings(max_examples=40, deadline=None)
def test_on_policy_and_without_kl_dr_grpo_and_kimi_are_reinforce(case: Case) -> None:
    case = replace(case.on_policy(), beta=0.0)
    equal(gradient("dr_grpo", case), gradient("reinforce", case))
    equal(gradient("kimi", case), gradient("reinforce", case))


@given(cases())
@settings(max_examples=40, deadline=None)
def test_kimi_is_trajectory_balance_but_for_the_mean_log_ratio(case: Case) -> None:
    """The advantage of TB is larger by β κ̄."""
    kappa = np.where(case.mask, case.logprobs - case.reference, 0.0).sum(axis=1)
    missing = case.beta * of_groups(case, np.mean, kappa) * case.mask
    equal(gradient("kimi", case) - gradient("tb_vargrad", case), missing)


@given(st.integers(0, 2**32), st.sampled_from([0.1, 1.0]))
@settings(max_examples=20, deadline=None)
def test_online_dpo_of_two_responses_is_dpo(seed: int, beta: float) -> None:
    """The mean over trajectories is the textbook's mean over pairs, in value and gradient."""
    rng, queries, width = np.random.default_rng(seed), 3, 4
    logprobs = torch.tensor(rng.normal(-1, 1, (2 * queries, width)), dtype=torch.float32, requires_grad=True)
    reference = torch.tensor(rng.normal(-1, 1, (2 * queries, width)), dtype=torch.float32)
    inputs = LossInputs(
        rewards=torch.tensor([1.0, 0.0] * queries),
        reference_logprobs=reference,
        behavior_logprobs=reference,
        mask=torch.ones(2 * queries, width, dtype=torch.bool),
        group_ids=torch.arange(queries).repeat_interleave(2),
    )
    better, worse = (logprobs - reference).sum(dim=-1).view(queries, 2).unbind(dim=1)
    textbook = -logsigmoid(beta * (better - worse)).mean()
    (expected,) = torch.autograd.grad(textbook, logprobs)
    objective = make("online_dpo")
    loss, _ = objective.loss(logprobs, inputs, objective.group_context(logprobs.detach(), inputs, beta), beta)
    (actual,) = torch.autograd.grad(loss.mean(), logprobs)
    torch.testing.assert_close(loss.mean(), textbook)
    torch.testing.assert_close(actual, expected)


@given(whole_responses)
@settings(max_examples=40, deadline=None)
def test_online_dpo_of_two_responses_starts_as_rloo(case: Case) -> None:
    """At the reference the sigmoid is 1/2: the step is RLOO's for two rewards that are β apart."""
    case = replace(case.at_the_reference(), group_ids=np.arange(len(case.rewards)) // 2)
    apart = replace(case, rewards=case.beta * (np.arange(len(case.rewards)) % 2))
    equal(gradient("online_dpo", apart), gradient("rloo", apart))


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"sft"}))
@given(case=cases(), reward=st.sampled_from([-3.0, 0.0, 0.1]))
@settings(max_examples=20, deadline=None)
def test_equal_rewards_at_the_reference_teach_nothing(name: str, case: Case, reward: float) -> None:
    case = replace(case.at_the_reference(), rewards=np.full(len(case.rewards), reward))
    assert np.abs(gradient(name, case)).max(initial=0.0) < 1e-3  # 0.1 is not a float, and GRPO divides by 10⁻⁴


@given(case=whole_responses)
@settings(max_examples=20, deadline=None)
def test_at_the_posterior_no_data_has_anything_to_teach_trajectory_balance(case: Case) -> None:
    """Where κ = r/β − log Z. The others are at rest there on fresh data only."""
    kappa = np.where(case.mask, case.logprobs - case.reference, 0.0).sum(axis=1)
    case = replace(case, rewards=case.beta * (kappa + case.group_ids % 7))
    assert np.abs(gradient("tb_vargrad", case)).max() < 1e-3
    for name in ("reinforce", "rloo", "proximal_rloo"):
        assert np.abs(gradient(name, case.on_policy())).max() < 1e-3


def test_sft_is_cross_entropy() -> None:
    logits = torch.randn(5, 4, 11, generator=torch.Generator().manual_seed(0), requires_grad=True)
    tokens = torch.randint(0, 11, (5, 4), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(4) < torch.tensor([[4], [1], [2], [0], [3]])
    rewards = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    logprobs = torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0]
    inputs = LossInputs(rewards, logprobs.detach(), logprobs.detach(), mask, torch.arange(5))
    for options, kept in (({}, mask), ({"min_reward": 1.0}, mask & (rewards == 1)[:, None])):
        sft = make("sft", **options)
        loss = sft.loss(logprobs, inputs, sft.group_context(logprobs.detach(), inputs, 0.0), 0.0)[0].sum()
        expected = cross_entropy(logits[kept], tokens[kept], reduction="sum")
        torch.testing.assert_close(loss, expected)
        (actual,) = torch.autograd.grad(loss, logits, retain_graph=True)
        torch.testing.assert_close(actual, torch.autograd.grad(expected, logits, retain_graph=True)[0])


REWARDS = torch.tensor([0.0, 1.0, -0.5, 0.3])
BETA = 0.3


def expected_gradient(name: str, theta: Tensor, reference: Tensor) -> Tensor:
    """Of the mean loss of two fresh one-token responses, over all 4 × 4 draws of them."""
    n = len(theta)
    tokens = torch.cartesian_prod(torch.arange(n), torch.arange(n))
    log_policy = torch.log_softmax(theta, 0)
    weights = log_policy.detach()[tokens].sum(dim=1).exp()
    flat = tokens.flatten()
    logprobs = log_policy[flat][:, None]
    inputs = LossInputs(
        rewards=REWARDS[flat],
        reference_logprobs=reference[flat][:, None],
        behavior_logprobs=logprobs.detach(),
        mask=torch.ones(len(flat), 1, dtype=torch.bool),
        group_ids=torch.arange(n * n).repeat_interleave(2),
    )
    objective = make(name)
    loss, _ = objective.loss(logprobs, inputs, objective.group_context(logprobs.detach(), inputs, BETA), BETA)
    (result,) = torch.autograd.grad((weights * loss.view(n * n, 2).mean(dim=1)).sum(), theta)
    return result


@pytest.mark.parametrize(
    ("name", "of_reward", "of_kl", "of_forward_kl"),
    [
        ("rloo", 1, 1, 0),
        ("proximal_rloo", 1, 1, 0),
        ("reinforce", 1 / 2, 1 / 2, 0),
        ("tb_vargrad", 1 / 2, 1 / 2, 0),
        ("kimi", 1 / 2, 1, 0),
        ("dr_grpo", 1 / 2, 0, 1),
        ("sft", 0, 0, 0),
    ],
)
def test_on_average_the_step_on_fresh_responses_is_that_of_its_aim(
    name: str, of_reward: float, of_kl: float, of_forward_kl: float
) -> None:
    """−a ∇E[r] + b β ∇KL(π‖π_ref) + c β ∇KL(π_ref‖π), K = 2: with 1/2 for a baseline that has the row itself in it."""
    theta = torch.tensor([0.5, -0.3, 0.1, 0.9], requires_grad=True)
    reference = torch.log_softmax(torch.tensor([0.2, 0.4, -1.0, 0.0]), 0)
    log_policy = torch.log_softmax(theta, 0)
    reward = (log_policy.exp() * REWARDS).sum()
    kl = (log_policy.exp() * (log_policy - reference)).sum()
    forward_kl = (reference.exp() * (reference - log_policy)).sum()
    aim = -of_reward * reward + BETA * (of_kl * kl + of_forward_kl * forward_kl)
    (expected,) = torch.autograd.grad(aim, theta)
    torch.testing.assert_close(expected_gradient(name, theta, reference), expected, atol=1e-6, rtol=1e-5)
