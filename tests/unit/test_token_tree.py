"""The world of the posterior check: what it enumerates is right."""

from __future__ import annotations

import math

import pytest
import torch
from token_tree import TokenTree, make_world


@pytest.fixture(scope="module")
def world():
    return make_world(prompts=2, letters=3, max_tokens=4, modes=3)


def random_tables(world, number, scale=1.0):
    """Policies `[number, P, W, M]` all around the reference."""
    draw = torch.Generator().manual_seed(5)
    noise = torch.randn(number, *world.reference.shape, generator=draw, dtype=torch.float64)
    return (world.reference + scale * noise).log_softmax(dim=-2)


@pytest.mark.parametrize(("letters", "max_tokens"), [(1, 1), (2, 3), (4, 5)])
def test_every_response_is_there_once(letters, max_tokens):
    tree = TokenTree.of(letters, max_tokens)
    responses = {tuple(tokens[mask].tolist()) for tokens, mask in zip(tree.tokens, tree.mask, strict=True)}
    assert len(responses) == tree.size
    assert tree.size == sum(letters**said for said in range(max_tokens)) + letters**max_tokens
    for tokens in responses:
        assert letters not in tokens[:-1], "goes on after the end"
        assert len(tokens) == max_tokens or tokens[-1] == letters, "stops without the end"


def test_probabilities_of_all_responses_add_up_to_one(world):
    total = world.tree.response_logprobs(random_tables(world, 3)).exp().sum(dim=-1)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_a_response_has_the_probability_of_its_tokens(world):
    tree, table = world.tree, random_tables(world, 1)[0]
    responses = torch.arange(tree.size).expand(len(table), -1)
    of_tokens = torch.where(tree.mask, tree.token_logprobs(table, responses), 0.0)
    torch.testing.assert_close(of_tokens.sum(dim=-1), tree.response_logprobs(table))
    for response in range(tree.size):
        node, total = 0, 0.0
        for token in tree.tokens[response][tree.mask[response]].tolist():
            total += table[1, token, node].item()
            node = tree.following[node, token].item()
        assert node == -1 - response
        assert of_tokens[1, response].sum().item() == pytest.approx(total)


def test_samples_are_as_frequent_as_enumeration_says(world):
    number, table = 100_000, random_tables(world, 1)[0].float()
    draw = torch.Generator().manual_seed(0)
    responses = world.tree.sample(table, torch.rand(2, number, 4, generator=draw))
    for of_prompt, logprobs in zip(responses, world.tree.response_logprobs(table), strict=True):
        share = logprobs.exp()
        error = of_prompt.bincount(minlength=world.tree.size) / number - share
        assert (error.abs() <= 5 * (share / number).sqrt() + 1e-9).all()


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_samples_end_whatever_the_random_number(world, uniform):
    responses = world.tree.sample(world.reference.float(), torch.full((2, 1, 4), uniform))
    assert ((responses >= 0) & (responses < world.tree.size)).all()


def test_a_policy_has_the_probabilities_it_is_made_of(world):
    uniform = world.tree.policy(torch.ones(world.tree.size, dtype=torch.float64))
    shares = world.tree.response_logprobs(uniform)
    torch.testing.assert_close(shares, torch.full_like(shares, -math.log(world.tree.size)))
    posterior = world.log_posterior[1]
    torch.testing.assert_close(world.tree.response_logprobs(world.tree.policy(posterior.exp())), posterior)


def test_the_posterior_has_the_largest_j(world):
    posterior = torch.stack([world.tree.policy(of_prompt.exp()) for of_prompt in world.log_posterior])
    figures = world.measure(posterior[None])
    assert figures["tv"].item() == pytest.approx(0, abs=1e-12)
    assert figures["j"].item() == pytest.approx(world.optimum)
    assert figures["modes"].item() == 3
    around = (posterior + 0.01 * torch.randn(50, *posterior.shape, dtype=torch.float64)).log_softmax(dim=-2)
    assert (world.measure(around)["j"] < world.optimum).all()


def test_j_falls_short_by_beta_times_the_divergence_from_the_posterior(world):
    tables = random_tables(world, 4)
    logprobs = world.tree.response_logprobs(tables)
    divergence = (logprobs.exp() * (logprobs - world.log_posterior)).sum(dim=-1).mean(dim=-1)
    torch.testing.assert_close(world.measure(tables)["j"], world.optimum - world.beta * divergence)


def test_a_mode_counts_from_half_of_its_probability_on(world):
    one = world.modes[0].nonzero()[0]
    for factor, expected in ((0.4, 2.5), (0.6, 3)):  # a mode of one of two prompts is missing
        shares = world.log_posterior.exp()
        shares[0, one] *= factor
        table = torch.stack([world.tree.policy(of_prompt) for of_prompt in shares])
        assert world.measure(table[None])["modes"].item() == expected


def test_the_posterior_is_on_several_modes_but_not_only_there():
    world = make_world()
    posterior = world.log_posterior.exp() * world.modes
    assert world.modes.sum(dim=-1).tolist() == [8] * 4
    assert ((posterior.sum(dim=-1) > 0.6) & (posterior.sum(dim=-1) < 0.9)).all()
    assert (posterior.amax(dim=-1) < 0.4).all()
    for of_prompt in world.modes:
        starts = {tuple(tokens) for tokens in world.tree.tokens[of_prompt, :2].tolist()}
        assert len(starts) == 8, "two modes have the first tokens in common"
