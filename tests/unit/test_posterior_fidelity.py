"""The posterior check: its data is as stale as it says, its runs are apart, and Trajectory Balance learns."""

from __future__ import annotations

import json
import math

import pytest
import torch
from posterior_fidelity import STALENESS, Outcome, best, make_objective, plot, row, run, summary
from token_tree import make_world
from tree_training import Budget, Draws, FixedBuffer, Snapshots, Stale, train

from tba_hpc.objectives import OBJECTIVES


@pytest.fixture(scope="module")
def world():
    return make_world(prompts=2, letters=3, max_tokens=3, modes=3)


@pytest.mark.parametrize("staleness", [0, 1, 5])
def test_snapshots_give_the_weights_of_so_many_steps_ago(staleness):
    snapshots = Snapshots(staleness)
    for step in range(12):
        snapshots.add(torch.tensor(step))
        assert snapshots.oldest == max(step - staleness, 0)


def test_stale_batches_have_the_log_probabilities_of_the_policy_that_sampled(world):
    budget = Budget(rates=[0.1, 0.2], seeds=[3], samples=5)
    data = Stale(world.tree, [0, 2], Draws(world, budget, cells=2))
    logits = torch.randn(6, 8, *world.reference.shape[1:], generator=torch.Generator().manual_seed(1))
    tables = logits.log_softmax(dim=-2)
    for step, now in enumerate(tables):
        responses, behavior = data.draw(now)
        assert responses.shape == (8, 5)
        samplers = torch.cat([now[:4], tables[max(step - 2, 0), 4:]])
        assert torch.equal(behavior, world.tree.token_logprobs(samplers, responses))


def test_the_buffer_is_uniform_and_says_so(world):
    budget = Budget(rates=[0.1], seeds=[0, 1], samples=4000, buffer=4000)
    data = FixedBuffer(world.tree, budget.buffer, Draws(world, budget, cells=1))
    responses, behavior = data.draw(world.reference)
    assert responses.shape == (4, 4000)
    logprobs = torch.where(world.tree.mask[responses], behavior, 0.0).sum(dim=-1)
    torch.testing.assert_close(logprobs, torch.full_like(logprobs, -math.log(world.tree.size)))
    expected = 4000 / world.tree.size
    for of_prompt in responses:
        counts = of_prompt.bincount(minlength=world.tree.size)
        assert ((counts - expected).abs() < 6 * math.sqrt(2 * expected)).all()


def test_a_buffer_holds_what_it_was_filled_with_at_the_start(world):
    budget = Budget(rates=[0.1], seeds=[0], samples=200, buffer=3)
    data = FixedBuffer(world.tree, budget.buffer, Draws(world, budget, cells=1))
    drawn = torch.cat([data.draw(world.reference)[0] for _ in range(3)], dim=1)
    assert all(1 < len(of_prompt.unique()) <= 3 for of_prompt in drawn)


@pytest.mark.parametrize("staleness", [[0, 16], None])
def test_trajectory_balance_comes_nearer_to_the_posterior(world, staleness):
    budget = Budget(rates=[0.1], seeds=[0], steps=150, buffer=2000)
    before = world.measure(world.reference[None])["tv"].item()
    for of_cell in train(world, make_objective("tb_vargrad", world.beta), budget, staleness):
        assert world.measure(of_cell[0])["tv"].item() < before / 3


@pytest.mark.parametrize(("several", "one"), [([0, 2], [2]), (None, None)])
def test_a_run_is_the_same_whatever_others_are_beside_it(world, several, one):
    objective = make_objective("tb_vargrad", world.beta)
    together = train(world, objective, Budget(rates=[0.01, 0.1], seeds=[0, 1], steps=20, buffer=50), several)
    alone = train(world, objective, Budget(rates=[0.1], seeds=[1], steps=20, buffer=50), one)
    torch.testing.assert_close(together[-1:, 1:, 1:], alone)
    different = together.flatten(0, 2) - alone[0, 0, 0]
    assert (different.abs().amax(dim=(1, 2, 3)) > 0.01).sum() == len(different) - 1


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_every_objective_takes_part(name):
    (outcome,) = run(name, [1], Budget(rates=[0.1], seeds=[0], steps=30, samples=16))
    assert (outcome.objective, outcome.data) == (name, "staleness_1")
    assert 0 < outcome.figures["tv"] < 1
    assert outcome.figures["reward"] > 0.2, "the reference policy has 0.17"


def test_the_learning_rate_with_the_best_j_counts(world):
    posterior = torch.stack([world.tree.policy(of_prompt.exp()) for of_prompt in world.log_posterior])
    diverged = torch.full_like(posterior, math.nan)
    tables = torch.stack([torch.stack([policy] * 2) for policy in (diverged, world.reference, posterior)])
    rate, figures = best(world, [0.3, 0.1, 0.01], tables)
    assert rate == 0.01
    assert figures["tv_worst"] == pytest.approx(0, abs=1e-9)


def outcomes_of(name, figures):
    return [Outcome(name, staleness, 0.1, figures) for staleness in (*STALENESS, None)]


def test_the_picture_is_drawn(tmp_path):
    plot([*outcomes_of("tb_vargrad", {"tv": 0.01}), *outcomes_of("grpo", {"tv": 0.3})], tmp_path / "tv.png")
    assert (tmp_path / "tv.png").read_bytes().startswith(b"\x89PNG")


def test_the_last_line_has_a_number_for_each_objective_and_source():
    figures = {"tv": 0.25, "tv_worst": 0.5, "reward": 1.0, "kl": math.nan, "j": 0.125, "modes": 8.0}
    outcomes = outcomes_of("tb_vargrad", figures)
    report = json.loads(summary(outcomes, Budget(rates=[0.1, 0.2], seeds=[0, 1]), 3.0))
    assert set(report) == {"benchmark", "machine", "versions", "seeds", "seconds", "metrics"}
    assert report["benchmark"] == "posterior_fidelity"
    assert report["seeds"] == [0, 1]
    data = {name.split("/")[1] for name in report["metrics"]}
    assert data == {*(f"staleness_{steps}" for steps in (0, 1, 4, 16, 64)), "uniform_buffer"}
    assert report["metrics"]["tb_vargrad/staleness_16/tv"] == 0.25
    assert report["metrics"]["tb_vargrad/uniform_buffer/kl"] is None
    assert row(outcomes[0], [0.1, 0.2]).endswith("0.1*")
