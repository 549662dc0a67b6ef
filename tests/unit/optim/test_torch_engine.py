"""The engine's gradient against one computed trajectory by trajectory, for any micro-batches and trainers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_cases import CPU, EOS, TEMPERATURE, VOCAB, as_trainers, make_batch, make_engine, make_model
from pydantic import TypeAdapter
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tba_hpc.config import ModelConfig, ObjectiveConfig
from tba_hpc.models import Sequences, load_policy, load_tokenizer, token_logprobs
from tba_hpc.objectives import OBJECTIVES
from tba_hpc.optim.engine import OptimEngine
from tba_hpc.optim.micro_batches import plan, shard
from tba_hpc.trajectory import SampledBatch, Trajectory, TrajectoryBatch

BETA = 0.1
BUDGETS = [1, 12, 30, 60, 100, 10_000]


def plain_gradient(model: PreTrainedModel, batch: SampledBatch) -> tuple[list[Tensor], dict[str, float]]:
    """Gradients of the mean of −Â log π_θ(y|x), without padding, chunks or micro-batches; and mean metrics."""
    logprobs = []
    for t in batch.trajectories:
        ids = torch.from_numpy(np.concatenate([t.prompt_tokens, t.response_tokens])).long()
        per_token = torch.log_softmax(model(input_ids=ids[None]).logits[0] / TEMPERATURE, -1)
        predicted = per_token[len(t.prompt_tokens) - 1 : len(ids) - 1]
        logprobs.append(predicted.gather(-1, ids[len(t.prompt_tokens) :, None]).sum())
    log_pi = torch.stack(logprobs)
    rewards = np.array([t.reward for t in batch.trajectories])
    kappa = log_pi.detach().double().numpy() - [t.reference_logprobs.sum(dtype=float) for t in batch.trajectories]
    means = {
        g: (rewards[batch.group_ids == g].mean(), kappa[batch.group_ids == g].mean()) for g in set(batch.group_ids)
    }
    r_bar, kappa_bar = np.array([means[g] for g in batch.group_ids]).T
    advantage = (rewards - r_bar) - BETA * (kappa - kappa_bar)
    loss = -(torch.from_numpy(advantage).float() * log_pi).mean()
    gradients = list(torch.autograd.grad(loss, list(model.parameters())))
    metrics = {
        "log_ratio": kappa.mean(),
        "log_z": (r_bar / BETA - kappa_bar).mean(),
        "residual": np.abs(advantage).mean(),
        "tb_loss": (advantage**2 / BETA**2).mean(),
        "loss": (advantage**2 / BETA / 2).mean(),
        "tokens": float(sum(len(t.response_tokens) for t in batch.trajectories)),
        "grad_norm": float(torch.cat([g.flatten() for g in gradients]).norm()),
        "skipped_updates": 0.0,
    }
    return gradients, metrics


def check(
    model: PreTrainedModel, metrics: dict[str, float], gradients: list[Tensor], expected: dict[str, float]
) -> None:
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-5, rtol=1e-4)
    assert set(metrics) == {*expected, "micro_batches"}
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-5, abs=1e-5), name


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("budget", BUDGETS)
def test_gradient_and_metrics_for_every_split_into_micro_batches(budget: int, tied: bool) -> None:
    model, batch = make_model(tied), make_batch()
    gradients, expected = plain_gradient(model, batch)
    metrics = make_engine(model, budget).step(batch, len(batch), BETA, learning_rate=0.0)
    check(model, metrics, gradients, expected)
    rows = batch.trajectories.rows
    plans = plan(rows["prompt_length"] + rows["response_length"], batch.group_ids, budget)
    assert metrics["micro_batches"] == len(plans)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_group_split_over_micro_batches_has_the_gradient_of_the_whole(name: str) -> None:
    settings = TypeAdapter(ObjectiveConfig).validate_python({"name": name, "beta": {"kind": "constant", "value": 1}})
    found = []
    for budget in (10_000, 60, 12):  # whole, both, all split
        model = make_model()
        engine = make_engine(model, budget, objective=OBJECTIVES[name](settings))
        metrics = engine.step(make_batch(), len(make_batch()), BETA, learning_rate=0.0)
        found.append((metrics, [parameter.grad for parameter in model.parameters()]))
    (whole, gradients), *others = found
    assert whole["grad_norm"] > 0.01
    for metrics, split in others:
        assert metrics["micro_batches"] > whole["micro_batches"]
        del metrics["micro_batches"]
        assert metrics == pytest.approx({key: whole[key] for key in metrics}, rel=1e-4, abs=1e-4)
        for expected, actual in zip(gradients, split, strict=True):
            torch.testing.assert_close(actual, expected, atol=1e-5 * max(1.0, whole["grad_norm"]), rtol=1e-4)


def test_budgets_cover_split_and_whole_groups() -> None:
    rows, group_ids = make_batch().trajectories.rows, make_batch().group_ids
    kinds = [{m.split for m in plan(rows["prompt_length"] + rows["response_length"], group_ids, b)} for b in BUDGETS]
    assert {True} in kinds
    assert {False} in kinds
    assert {True, False} in kinds


@pytest.mark.parametrize("n_trainers", [1, 2, 3, 6])
@pytest.mark.parametrize("budget", [30, 10_000])
def test_gradient_and_metrics_for_any_number_of_trainers(n_trainers: int, budget: int) -> None:
    """Of six trainers two have no group of the four."""
    batch = make_batch()
    rows = batch.trajectories.rows
    shares = shard(rows["prompt_length"] + rows["response_length"], batch.group_ids, n_trainers)
    models = [make_model() for _ in range(n_trainers)]
    gradients, expected = plain_gradient(make_model(), batch)

    def role(index: int, all_reduce: Callable[[Tensor], None]) -> dict[str, float]:
        engine = make_engine(models[index], budget, all_reduce=all_reduce)
        return engine.step(batch.select(shares[index]), len(batch), BETA, learning_rate=0.0)

    results = as_trainers(n_trainers, role)
    for model, metrics in zip(models, results, strict=True):
        check(model, metrics, gradients, expected)
        assert metrics == results[0]


def test_rows_may_come_in_any_order() -> None:
    model, batch = make_model(), make_batch()
    gradients, expected = plain_gradient(model, batch)
    shuffled = batch.select(np.random.default_rng(0).permutation(len(batch)))
    check(model, make_engine(model, 60).step(shuffled, len(batch), BETA, 0.0), gradients, expected)


def test_gradient_checkpointing_changes_no_gradient() -> None:
    model, batch = make_model(), make_batch()
    gradients, expected = plain_gradient(model, batch)
    engine = make_engine(model, 60, gradient_checkpointing=True)
    check(model, engine.step(batch, len(batch), BETA, 0.0), gradients, expected)


def test_second_step_starts_from_zero_gradients() -> None:
    model, batch = make_model(), make_batch()
    gradients, expected = plain_gradient(model, batch)
    engine = make_engine(model)
    engine.step(batch, len(batch), BETA, learning_rate=0.0)
    check(model, engine.step(batch, len(batch), BETA, learning_rate=0.0), gradients, expected)


def test_step_is_adamw_on_the_clipped_gradient() -> None:
    model, twin, batch = make_model(), make_model(), make_batch()
    engine = make_engine(model, max_grad_norm=0.5)
    optimizer = torch.optim.AdamW(twin.parameters(), lr=1e-2, weight_decay=0.0)
    for _ in range(3):
        gradients, expected = plain_gradient(twin, batch)
        for parameter, gradient in zip(twin.parameters(), gradients, strict=True):
            parameter.grad = gradient
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
        optimizer.step()
        metrics = engine.step(batch, len(batch), BETA, learning_rate=1e-2)
        assert metrics["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-3)
        assert metrics["grad_norm"] > 0.5
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, atol=1e-4, rtol=0)


def weights_of(engine: OptimEngine) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in engine.named_parameters()}


@pytest.mark.parametrize("reward", [float("inf"), float("nan")])
def test_every_trainer_skips_an_update_that_is_not_finite(reward: float) -> None:
    batch, spoiled = make_batch(), make_batch()
    spoiled.trajectories.rows["reward"][0] = reward
    shares = [np.flatnonzero(batch.group_ids < 2), np.flatnonzero(batch.group_ids >= 2)]
    models = [make_model(), make_model()]

    def role(index: int, all_reduce: Callable[[Tensor], None]) -> list[Any]:
        engine = make_engine(models[index], all_reduce=all_reduce)
        before = weights_of(engine)
        skipped = engine.step(spoiled.select(shares[index]), len(batch), BETA, 1e-3)
        between = weights_of(engine)
        made = engine.step(batch.select(shares[index]), len(batch), BETA, 1e-3)
        return [before, skipped["skipped_updates"], between, made["skipped_updates"], weights_of(engine)]

    one, two = as_trainers(2, role)
    for before, skipped, between, made, after in (one, two):
        assert (skipped, made) == (1.0, 0.0)
        assert all(torch.equal(between[name], before[name]) for name in before)
        assert not all(torch.equal(after[name], before[name]) for name in before)
        assert all(tensor.isfinite().all() for tensor in after.values())
    assert all(torch.equal(one[4][name], two[4][name]) for name in one[4])


def test_responses_that_are_all_empty_change_nothing() -> None:
    batch = make_batch().select(np.array([1, 1]))
    engine = make_engine(make_model())
    before = weights_of(engine)
    metrics = engine.step(batch, 2, BETA, learning_rate=1e-2)
    assert metrics["grad_norm"] == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in engine.named_parameters())


@pytest.mark.parametrize("tied", [False, True])
def test_published_parameters_are_those_of_the_model_once(tied: bool) -> None:
    model = make_model(tied)
    published = make_engine(model).named_parameters()
    assert [name for name, _ in published] == [name for name, _ in model.named_parameters()]
    assert ("lm_head.weight" in dict(published)) == (not tied)
    assert not any(tensor.requires_grad for _, tensor in published)


def test_bfloat16_weights_gather_steps_below_their_resolution() -> None:
    model, batch = make_model(dtype=torch.bfloat16), make_batch()
    engine = make_engine(model, 60)
    before = weights_of(engine)
    for _ in range(40):
        metrics = engine.step(batch, len(batch), BETA, learning_rate=1e-5)
    name = "model.layers.0.mlp.up_proj.weight"
    master = engine.state()[f"weights/{name}"]
    assert metrics["skipped_updates"] == 0
    assert master.dtype == torch.float32
    assert (master - before[name].float()).abs().max() > 2e-4
    assert torch.equal(dict(engine.named_parameters())[name], master.to(torch.bfloat16))
    assert not torch.equal(dict(engine.named_parameters())[name], before[name])


def test_bfloat16_gradient_points_where_float32_does() -> None:
    batch, exact, rounded = make_batch(), make_model(), make_model(dtype=torch.bfloat16)
    gradients, _ = plain_gradient(exact, batch)
    engine = make_engine(rounded, 60)
    engine.step(batch, len(batch), BETA, 0.0)
    first_moments = [tensor.flatten() for name, tensor in engine.state().items() if name.startswith("exp_avg/")]
    flat = torch.cat(first_moments)
    assert torch.cosine_similarity(flat, torch.cat([g.flatten() for g in gradients]), dim=0) > 0.99


def test_float16_is_refused() -> None:
    with pytest.raises(ValueError, match="float16"):
        make_engine(make_model(dtype=torch.float16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_continues_bit_for_bit(dtype: torch.dtype) -> None:
    batch, engine = make_batch(), make_engine(make_model(dtype=dtype))
    engine.step(batch, len(batch), BETA, 1e-3)
    state = copy.deepcopy(engine.state())
    engine.step(batch, len(batch), BETA, 1e-3)
    resumed = make_engine(make_model(dtype=dtype))
    resumed.load_state(state)
    resumed.step(batch, len(batch), BETA, 1e-3)
    expected = engine.state()
    assert resumed.state().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in resumed.state().items())


def test_state_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="other parameters"):
        make_engine(make_model()).load_state(make_engine(make_model(tied=True)).state())


@pytest.mark.parametrize("tied", [False, True])
def test_saved_policy_loads_as_it_is(tmp_path: Path, tied: bool) -> None:
    batch, engine = make_batch(), make_engine(make_model(tied))
    engine.step(batch, len(batch), BETA, 1e-3)
    vocabulary = {f"t{i}": i for i in range(VOCAB)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="t0")), eos_token="t2"
    )
    engine.save_pretrained(tmp_path, tokenizer)
    loaded = load_policy(str(tmp_path), ModelConfig(path="unused"), CPU)
    assert load_tokenizer(str(tmp_path)).eos_token_id == EOS
    assert (tmp_path / "model.safetensors").exists()
    published = dict(engine.named_parameters())
    assert all(torch.equal(p, published[name]) for name, p in loaded.named_parameters())


def test_training_off_policy_reaches_the_posterior() -> None:
    """One prompt, every one-token response equally often whatever the policy: π_θ must become π_ref · exp(r/β) / Z."""
    model, beta = make_model(), 0.5
    rewards = np.random.default_rng(0).normal(0, 0.5, VOCAB)
    prompt, scores = np.array([1, 5], np.int32), np.zeros(1, np.float32)

    def batch_with(reference: Tensor) -> SampledBatch:
        trajectories = [
            Trajectory(
                prompt_id=0,
                prompt_tokens=prompt,
                response_tokens=np.array([token], np.int32),
                behavior_logprobs=scores,
                reference_logprobs=reference[token : token + 1].numpy(),
                reward=float(rewards[token]),
                correct=False,
                finished=True,
                temperature=TEMPERATURE,
                policy_version=0,
                reference_version=0,
                searcher=0,
            )
            for token in range(VOCAB)
        ]
        groups = np.zeros(VOCAB, np.int32)
        return SampledBatch(TrajectoryBatch.from_trajectories(trajectories), groups, groups.astype(bool))

    @torch.no_grad()
    def policy() -> Tensor:
        sequences = Sequences.from_trajectories(batch_with(torch.zeros(VOCAB)).trajectories, EOS, CPU)
        return token_logprobs(model, sequences, TEMPERATURE, 100)[:, 0]

    reference = policy()
    posterior = torch.softmax(reference + torch.from_numpy(rewards).float() / beta, 0)
    assert (reference.exp() - posterior).abs().sum() / 2 > 0.2
    engine, batch = make_engine(model, max_grad_norm=1.0), batch_with(reference)
    for step in range(150):
        metrics = engine.step(batch, VOCAB, beta, learning_rate=1e-2 * (1 - step / 150))
    assert (policy().exp() - posterior).abs().sum() / 2 < 0.005
    assert metrics["residual"] < 0.02
    true_log_z = torch.logsumexp(reference + torch.from_numpy(rewards).float() / beta, 0)
    assert metrics["log_z"] == pytest.approx(float(true_log_z), abs=0.02)
