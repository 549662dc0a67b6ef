"""Fine-tuning from start to end, on a model of one layer."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sft_cases import config, run, run_to_end

from tba_hpc.config import EvaluationConfig, ModelConfig, TaskConfig, load_sft_config
from tba_hpc.evaluator import evaluate
from tba_hpc.models import load_policy, load_tokenizer, token_logprobs
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import make_task

CONFIGS = Path(__file__).parents[3] / "configs"


def load(run_dir):
    path = str(run_dir / "final")
    return load_policy(path, ModelConfig(path=path), torch.device("cpu")), load_tokenizer(path)


def report(run_dir):
    return json.loads((run_dir / "report.json").read_text())


def test_learns_the_training_split_and_stops_there(tmp_path):
    settings = config(
        tmp_path, {"split": "train"}, max_steps=600, batch_size=32, evaluate_every=20, stop_at_accuracy=0.9
    )
    metrics = run_to_end(settings)
    accuracies = [m["accuracy"] for m in metrics if "accuracy" in m]
    assert report(tmp_path)["accuracy"] == accuracies[-1] >= 0.9
    assert all(accuracy < 0.9 for accuracy in accuracies[:-1])
    assert report(tmp_path)["steps"] == len(metrics) < 600
    assert metrics[-1]["loss"] < metrics[0]["loss"] / 2


def test_the_saved_model_is_the_evaluated_one(tmp_path):
    settings = config(tmp_path, {"split": "train"}, max_steps=30)
    metrics = run_to_end(settings)
    model, tokenizer = load(tmp_path)
    engine = HFEngine(model, ResponseEnd.of(model, tokenizer))
    some = EvaluationConfig(split="train", problems=100, batch_size=8)
    accuracy = evaluate(engine, make_task(settings.task), tokenizer, some, 13, 3).accuracy
    assert 0 < accuracy.share < 1
    assert accuracy.share == metrics[-1]["accuracy"] == report(tmp_path)["accuracy"]
    assert (list(accuracy.interval), accuracy.problems) == (report(tmp_path)["interval"], report(tmp_path)["problems"])


def test_every_step_is_recorded_and_evaluations_are_on_schedule(tmp_path):
    metrics = run_to_end(config(tmp_path))
    assert [m["step"] for m in metrics] == [1, 2, 3, 4, 5, 6]  # steps done
    assert [m["learning_rate"] for m in metrics] == [0.005, 0.01, 0.01, 0.01, 0.01, 0.01]
    assert ["accuracy" in m for m in metrics] == [False, False, False, True, False, True]
    assert all(m["loss"] > 0 and m["grad_norm"] > 0 for m in metrics)
    assert any((tmp_path / "tensorboard").iterdir())


def test_the_seed_decides_everything(tmp_path):
    first, again, other = (
        run_to_end(config(tmp_path / name).model_copy(update={"seed": seed}))
        for name, seed in [("first", 0), ("again", 0), ("other", 1)]
    )
    assert timeless(first) == timeless(again)
    assert first[0]["loss"] != other[0]["loss"]


def timeless(metrics):
    return [{name: value for name, value in line.items() if name != "time"} for line in metrics]


def test_goes_on_from_a_model_without_evaluation(tmp_path):
    before = run_to_end(config(tmp_path / "start", max_steps=60))
    settings = config(tmp_path / "next", {"problems": 0}).model_copy(
        update={"init": None, "model": ModelConfig(path=str(tmp_path / "start" / "final"))}
    )
    after = run_to_end(settings)
    assert report(tmp_path / "next") == {"steps": 6, "accuracy": None, "interval": None, "problems": 0}
    assert after[0]["loss"] < before[0]["loss"]


@pytest.fixture
def passes(monkeypatch):
    """The padded size, the number of solution tokens, and whether activations are recomputed, in each forward pass of
    the training."""
    seen = []

    def recording(model, sequences, **settings):
        recomputes = model.training and model.is_gradient_checkpointing
        seen.append((sequences.input_ids.numel(), int(sequences.response_mask.sum()), recomputes))
        return token_logprobs(model, sequences, **settings)

    monkeypatch.setattr("tba_hpc.sft.learner.token_logprobs", recording)
    return seen


def test_micro_batches_change_neither_gradient_nor_weights(tmp_path, passes):
    expected = run_to_end(config(tmp_path / "whole", max_grad_norm=0.1))
    assert len(passes) == 6
    sum_of_tokens = sum(tokens for _, tokens, _ in passes)
    passes.clear()
    budget = 18  # two of the eight rows, of 5 + 2 tokens
    metrics = run_to_end(config(tmp_path / "split", max_grad_norm=0.1, micro_batch_tokens=budget))
    assert 7 < max(size for size, _, _ in passes) <= budget
    assert sum(tokens for _, tokens, _ in passes) == sum_of_tokens
    for one, other in zip(timeless(expected), timeless(metrics), strict=True):
        assert other == pytest.approx(one, rel=1e-4)
    assert_close_weights(load(tmp_path / "whole")[0], load(tmp_path / "split")[0], 1e-4)


def assert_close_weights(one, other, tolerance):
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.allclose(a.float(), b.float(), atol=tolerance), name


def test_a_batch_that_fits_is_computed_in_the_order_it_was_drawn_in(tmp_path, monkeypatch):
    """So a recipe gives the same checkpoint bit for bit, however much room there is."""
    lengths = []

    def recording(model, sequences, **settings):
        lengths.append(sequences.response_mask.sum(dim=1).tolist())
        return token_logprobs(model, sequences, **settings)

    monkeypatch.setattr("tba_hpc.sft.learner.token_logprobs", recording)
    task = TaskConfig(name="arithmetic", options={"max_operand": 8})
    run_to_end(config(tmp_path, {"problems": 0}, max_steps=1).model_copy(update={"task": task}))
    problems = make_task(task)
    drawn = np.random.default_rng(0).permutation(problems.size("train"))[:8]
    expected = [len(problems.prompt("train", i).answer) + 1 for i in drawn]
    assert lengths == [expected]
    assert expected not in (sorted(expected), sorted(expected, reverse=True))


def going_on(run_dir, model=None, **training):
    """From the model of the run `start` beside it."""
    model = ModelConfig(path=str(run_dir.parent / "start" / "final"), **(model or {}))
    return run_to_end(config(run_dir, **training).model_copy(update={"init": None, "model": model}))


def test_recomputing_activations_changes_nothing(tmp_path, passes):
    """Also after an evaluation, which puts the model into the mode where nothing is recomputed."""
    run_to_end(config(tmp_path / "start"))
    passes.clear()
    expected = going_on(tmp_path / "plain", evaluate_every=2)
    metrics = going_on(tmp_path / "saving", {"gradient_checkpointing": True}, evaluate_every=2)
    assert [recomputes for _, _, recomputes in passes] == [False] * 6 + [True] * 6
    for one, other in zip(timeless(expected), timeless(metrics), strict=True):
        assert other == pytest.approx(one, rel=1e-5)
    assert_close_weights(load(tmp_path / "plain")[0], load(tmp_path / "saving")[0], 1e-5)


def test_bfloat16_models_learn_in_steps_too_small_for_their_precision(tmp_path):
    run_to_end(config(tmp_path / "start"))
    slow = {"learning_rate": {"kind": "constant", "value": 2e-5}, "max_steps": 15, "evaluate_every": 15}
    going_on(tmp_path / "coarse", {"dtype": "bfloat16"}, **slow)
    going_on(tmp_path / "fine", **slow)
    before, weights, after = (
        load_file(tmp_path / name / "final" / "model.safetensors") for name in ("start", "coarse", "fine")
    )
    name = "model.layers.0.mlp.down_proj.weight"
    assert weights[name].dtype == torch.bfloat16
    moved = (after[name] - before[name]).flatten()
    coarse_moved = (weights[name].float() - before[name].bfloat16().float()).flatten()
    assert torch.corrcoef(torch.stack([moved, coarse_moved]))[0, 1] > 0.9


def test_demonstrations_that_are_too_long_are_left_out_if_asked_for(tmp_path, caplog, passes):
    settings = config(tmp_path, {"problems": 0}, skip_too_long=True, max_steps=1, batch_size=1000)
    task = TaskConfig(name="arithmetic", options={"max_operand": 8})
    settings = settings.model_copy(update={"task": task, "max_response_tokens": 2})
    run_to_end(settings)
    prompts = [make_task(task).prompt("train", i) for i in range(make_task(task).size("train"))]
    short = [prompt for prompt in prompts if len(prompt.answer) == 1]
    assert sum(tokens for _, tokens, _ in passes) == 2 * len(short)
    assert f"{len(prompts) - len(short)} of {len(prompts)} demonstrations are left out" in caplog.text


def test_solutions_that_leave_no_positions_for_a_prompt_are_refused(tmp_path):
    settings = config(tmp_path).model_copy(update={"max_response_tokens": 16})
    with pytest.raises(ConfigError, match=r"max_response_tokens = 16 leaves no room for a prompt: .* has 16 positions"):
        run(settings)


def test_the_checkpoint_in_the_repository_answers_as_its_recipe_says():
    settings = load_sft_config(CONFIGS / "arithmetic_sft.yaml", [])
    path = str(CONFIGS / "checkpoints" / "arithmetic_sft")
    model, tokenizer = load_policy(path, ModelConfig(path=path), torch.device("cpu")), load_tokenizer(path)
    assert model.config.head_dim == 32
    engine, everything = HFEngine(model, ResponseEnd.of(model, tokenizer)), EvaluationConfig(problems=0)
    result = evaluate(engine, make_task(settings.task), tokenizer, everything, 16, settings.max_response_tokens)
    assert result.accuracy.share == pytest.approx(0.59, abs=0.005)
