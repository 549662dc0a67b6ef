from pathlib import Path

import pytest
import torch

from tba_hpc.config import EvaluationConfig, ModelConfig, SftConfig, load_sft_config
from tba_hpc.evaluator import evaluate
from tba_hpc.models import load_policy, load_tokenizer
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
    engine = HFEngine(model, tokenizer.eos_token_id)
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


def test_an_existing_checkpoint_is_not_overwritten(tmp_path):
    (tmp_path / "final").mkdir()
    with pytest.raises(ValueError, match="final exists"):
        run(config(tmp_path))


def test_too_long_a_solution_is_named(tmp_path):
    settings = config(tmp_path).model_copy(update={"max_response_tokens": 1})
    with pytest.raises(ValueError, match=r"solution of prompt 0 .* 2 tokens .* max_response_tokens = 1"):
        run(settings)


def test_solutions_that_leave_no_positions_for_a_prompt_are_refused(tmp_path):
    settings = config(tmp_path).model_copy(update={"max_response_tokens": 16})
    with pytest.raises(ConfigError, match=r"max_response_tokens = 16 leaves no room for a prompt: .* has 16 positions"):
        run(settings)


def test_the_checkpoint_in_the_repository_answers_as_its_recipe_says():
    settings = load_sft_config(CONFIGS / "arithmetic_sft.yaml", [])
    path = str(CONFIGS / "checkpoints" / "arithmetic_sft")
    model, tokenizer = load_policy(path, ModelConfig(path=path), torch.device("cpu")), load_tokenizer(path)
    assert model.config.head_dim == 32
    engine, everything = HFEngine(model, tokenizer.eos_token_id), EvaluationConfig(problems=0)
    result = evaluate(engine, make_task(settings.task), tokenizer, everything, 16, settings.max_response_tokens)
    assert result.accuracy.share == pytest.approx(0.59, abs=0.005)
