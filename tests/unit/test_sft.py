import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tba_hpc.config import EvaluationConfig, ModelConfig, SftConfig, TaskConfig, load_sft_config
from tba_hpc.evaluator import evaluate
from tba_hpc.models import load_policy, load_tokenizer, token_logprobs
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.settings import ConfigError
from tba_hpc.sft import run_sft
from tba_hpc.tasks import make_task

CONFIGS = Path(__file__).parents[2] / "configs"
INIT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "max_position_embeddings": 16,
}


def config(run_dir, evaluation=None, **training):
    return SftConfig.model_validate(
        {
            "run_dir": run_dir,
            "init": INIT,
            "task": {"name": "arithmetic", "options": {"max_operand": 4, "test_fraction": 0.2}},
            "training": {
                "max_steps": 6,
                "batch_size": 8,
                "learning_rate": {"kind": "warmup_stable_decay", "peak": 0.01, "warmup": 2, "stable": 1000},
                "evaluate_every": 4,
                **training,
            },
            "max_response_tokens": 3,
            "evaluation": {"problems": 100, "batch_size": 8, **(evaluation or {})},
        }
    )


def run(settings):
    metrics = []
    return run_sft(settings, metrics.append), metrics


def load(result):
    model = load_policy(str(result.checkpoint), ModelConfig(path=str(result.checkpoint)), torch.device("cpu"))
    return model, load_tokenizer(str(result.checkpoint))


def test_learns_the_training_split_and_stops_there(tmp_path):
    settings = config(
        tmp_path, {"split": "train"}, max_steps=600, batch_size=32, evaluate_every=20, stop_at_accuracy=0.9
    )
    result, metrics = run(settings)
    accuracies = [m["accuracy"] for m in metrics if "accuracy" in m]
    assert result.evaluation.accuracy.share == accuracies[-1] >= 0.9
    assert all(accuracy < 0.9 for accuracy in accuracies[:-1])
    assert result.steps == len(metrics) < 600
    assert metrics[-1]["loss"] < metrics[0]["loss"] / 2


def test_the_saved_model_is_the_evaluated_one(tmp_path):
    settings = config(tmp_path)
    result, _ = run(settings)
    assert result.checkpoint == tmp_path / "final"
    model, tokenizer = load(result)
    engine = HFEngine(model, ResponseEnd.of(model, tokenizer))
    some = EvaluationConfig(problems=100, batch_size=8)
    assert evaluate(engine, make_task(settings.task), tokenizer, some, 13, 3) == result.evaluation


def test_reports_every_step_and_evaluates_on_schedule(tmp_path):
    _, metrics = run(config(tmp_path))
    assert [m["step"] for m in metrics] == [0, 1, 2, 3, 4, 5]
    assert [m["learning_rate"] for m in metrics] == [0.005, 0.01, 0.01, 0.01, 0.01, 0.01]
    assert ["accuracy" in m for m in metrics] == [False, False, False, True, False, True]
    assert all(m["loss"] > 0 and m["grad_norm"] > 0 for m in metrics)


def test_the_seed_decides_everything(tmp_path):
    first, again, other = (
        run(config(tmp_path / name).model_copy(update={"seed": seed}))[1]
        for name, seed in [("first", 0), ("again", 0), ("other", 1)]
    )
    assert first == again
    assert first[0]["loss"] != other[0]["loss"]


def test_goes_on_from_a_checkpoint_without_evaluation(tmp_path):
    start, before = run(config(tmp_path / "start", max_steps=60))
    settings = config(tmp_path / "next", {"problems": 0}).model_copy(
        update={"init": None, "model": ModelConfig(path=str(start.checkpoint))}
    )
    result, after = run(settings)
    assert (result.steps, result.evaluation) == (6, None)
    assert after[0]["loss"] < before[0]["loss"]


@pytest.mark.parametrize("found", ["final", "metrics.jsonl"])
def test_results_that_are_there_are_not_overwritten(tmp_path, found):
    (tmp_path / found).mkdir()
    with pytest.raises(ConfigError, match=f"{found} exists"):
        run(config(tmp_path))


def test_the_numbers_of_every_step_are_written(tmp_path):
    _, metrics = run(config(tmp_path))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]  # steps done
    for line, reported in zip(lines, metrics, strict=True):
        assert {name: line[name] for name in reported if name != "step"} == {
            name: value for name, value in reported.items() if name != "step"
        }
    assert any((tmp_path / "tensorboard").iterdir())


@pytest.fixture
def passes(monkeypatch):
    """The padded size, the number of solution tokens, and whether activations are recomputed, in each forward pass of
    the training."""
    seen = []

    def recording(model, sequences, **settings):
        recomputes = model.training and model.is_gradient_checkpointing
        seen.append((sequences.input_ids.numel(), int(sequences.response_mask.sum()), recomputes))
        return token_logprobs(model, sequences, **settings)

    monkeypatch.setattr("tba_hpc.sft.token_logprobs", recording)
    return seen


def test_micro_batches_change_neither_gradient_nor_weights(tmp_path, passes):
    whole, expected = run(config(tmp_path / "whole", max_grad_norm=0.1))
    assert len(passes) == 6
    sum_of_tokens = sum(tokens for _, tokens, _ in passes)
    passes.clear()
    budget = 18  # two of the eight rows, of 5 + 2 tokens
    split, metrics = run(config(tmp_path / "split", max_grad_norm=0.1, micro_batch_tokens=budget))
    assert 7 < max(size for size, _, _ in passes) <= budget
    assert sum(tokens for _, tokens, _ in passes) == sum_of_tokens
    for one, other in zip(expected, metrics, strict=True):
        assert other == pytest.approx(one, rel=1e-4)
    assert_close_weights(load(whole)[0], load(split)[0], 1e-4)


def assert_close_weights(one, other, tolerance):
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.allclose(a.float(), b.float(), atol=tolerance), name


def test_a_batch_that_fits_is_computed_in_the_order_it_was_drawn_in(tmp_path, monkeypatch):
    """So a recipe gives the same checkpoint bit for bit, however much room there is."""
    lengths = []

    def recording(model, sequences, **settings):
        lengths.append(sequences.response_mask.sum(dim=1).tolist())
        return token_logprobs(model, sequences, **settings)

    monkeypatch.setattr("tba_hpc.sft.token_logprobs", recording)
    task = TaskConfig(name="arithmetic", options={"max_operand": 8})
    run(config(tmp_path, {"problems": 0}, max_steps=1).model_copy(update={"task": task}))
    problems = make_task(task)
    drawn = np.random.default_rng(0).permutation(problems.size("train"))[:8]
    expected = [len(problems.prompt("train", i).answer) + 1 for i in drawn]
    assert lengths == [expected]
    assert expected not in (sorted(expected), sorted(expected, reverse=True))


def going_on(run_dir, start, model=None, **training):
    settings = config(run_dir, **training)
    model = ModelConfig(path=str(start.checkpoint), **(model or {}))
    return run(settings.model_copy(update={"init": None, "model": model}))


def test_recomputing_activations_changes_nothing(tmp_path, passes):
    """Also after an evaluation, which puts the model into the mode where nothing is recomputed."""
    start, _ = run(config(tmp_path / "start"))
    passes.clear()
    plain, expected = going_on(tmp_path / "plain", start, evaluate_every=2)
    saving, metrics = going_on(tmp_path / "saving", start, {"gradient_checkpointing": True}, evaluate_every=2)
    assert [recomputes for _, _, recomputes in passes] == [False] * 6 + [True] * 6
    for one, other in zip(expected, metrics, strict=True):
        assert other == pytest.approx(one, rel=1e-5)
    assert_close_weights(load(plain)[0], load(saving)[0], 1e-5)


def test_bfloat16_models_learn_in_steps_too_small_for_their_precision(tmp_path):
    start, _ = run(config(tmp_path / "start"))
    slow = {"learning_rate": {"kind": "constant", "value": 2e-5}, "max_steps": 15, "evaluate_every": 15}
    coarse, _ = going_on(tmp_path / "coarse", start, {"dtype": "bfloat16"}, **slow)
    fine, _ = going_on(tmp_path / "fine", start, **slow)
    weights = load_file(coarse.checkpoint / "model.safetensors")
    before, after = (load_file(result.checkpoint / "model.safetensors") for result in (start, fine))
    name = "model.layers.0.mlp.down_proj.weight"
    assert weights[name].dtype == torch.bfloat16
    moved = (after[name] - before[name]).flatten()
    coarse_moved = (weights[name].float() - before[name].bfloat16().float()).flatten()
    assert torch.corrcoef(torch.stack([moved, coarse_moved]))[0, 1] > 0.9


def test_demonstrations_that_are_too_long_are_left_out_if_asked_for(tmp_path, caplog, passes):
    settings = config(tmp_path, {"problems": 0}, skip_too_long=True, max_steps=1, batch_size=1000)
    task = TaskConfig(name="arithmetic", options={"max_operand": 8})
    settings = settings.model_copy(update={"task": task, "max_response_tokens": 2})
    run(settings)
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
