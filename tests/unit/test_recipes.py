"""The recipes in configs/ load, fit together, and have the settings that were published."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path

import pytest

from tba_hpc.config import RunConfig, SftConfig, load_run_config, load_sft_config
from tba_hpc.tasks import make_task
from tba_hpc.trajectory import Message

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "configs").glob("*.yaml"))
BATCH = sorted((ROOT / "slurm").glob("*.sbatch"))

GSM8K = {
    "schedule": "asynchronous",
    "model.path": "realtreetune/rho-1b-sft-GSM8K",
    "model.reference_path": "realtreetune/rho-1b-sft-GSM8K",
    "model.dtype": "bfloat16",
    "task.name": "gsm8k",
    "rollout.samples_per_query": 24,
    "rollout.temperature": 0.7,
    "rollout.top_p": 1.0,
    "rollout.max_prompt_tokens": 512,
    "rollout.max_response_tokens": 512,
    "buffer.most_on_policy": 0.95,
    "buffer.reward_softmax": 0.0,
    "buffer.start_size": 500,
    "buffer.deduplicate": True,
    "reference.reset_every": None,
    "objective.importance_ratio": None,
    "objective.log_ratio_limit": None,
    "trainer.queries_per_batch": 7,
    "trainer.samples_per_query": 20,
    "trainer.sync_every": 2,
}
TBA_PRIME = {
    "schedule": "fixed_lag",
    "model.dtype": "bfloat16",
    "reference.reset_every": 50,
    "objective.importance_ratio": (0, 8),
    "objective.log_ratio_limit": 10,
    "trainer.lag": 10,
    "trainer.samples_per_query": 16,
    "rollout.samples_per_query": 16,
}
PUBLISHED = {
    "gsm8k_rho1b": {**GSM8K, "trainer.steps": 1000},
    "gsm8k_rho1b_700": {**GSM8K, "trainer.steps": 700},
    "gsm8k_rho1b_sft": {
        "model.path": "microsoft/rho-math-1b-v0.1",
        "task.name": "gsm8k",
        "training.batch_size": 64,
        "training.max_steps": 2 * -(-7473 // 64),  # two epochs
        "training.weight_decay": 0,
        "training.max_grad_norm": 1,
    },
    "math_qwen25_7b_tba_prime": {
        **TBA_PRIME,
        "model.path": "Qwen/Qwen2.5-7B",
        "task.name": "hendrycks_math",
        "rollout.temperature": 1.0,
        "rollout.max_prompt_tokens": 1024,
        "rollout.max_response_tokens": 3072 - 1024,
        "trainer.queries_per_batch": 32,
        "trainer.steps": 400,
    },
    "countdown_qwen3_4b": {
        **TBA_PRIME,
        "model.path": "Qwen/Qwen3-4B-Instruct-2507",
        "task.name": "countdown",
        "trainer.steps": 720,
    },
}
SCHEDULES = {
    ("gsm8k_rho1b", "objective.beta"): {0: 0.012, 250: 0.008, 500: 0.004, 999: 0.004},
    ("gsm8k_rho1b_700", "objective.beta"): {0: 0.014, 250: 0.009, 500: 0.004, 699: 0.004},
    ("math_qwen25_7b_tba_prime", "objective.beta"): {0: 0.005, 399: 0.005},
    ("gsm8k_rho1b", "trainer.learning_rate"): {49: 1e-5, 499: 1e-5, 750: 5e-6, 1000: 0},
    ("gsm8k_rho1b_700", "trainer.learning_rate"): {49: 1e-5, 399: 1e-5, 550: 5e-6, 700: 0},
    ("gsm8k_rho1b_sft", "training.learning_rate"): {0: 1e-5 / 7, 6: 1e-5, 234: 0},
    ("math_qwen25_7b_tba_prime", "trainer.learning_rate"): {0: 1e-6, 399: 1e-6},
}
"""By step, the first of which is 0."""
WARM_UPS = {
    "gsm8k_smollm2_cpu": "gsm8k_smollm2_sft_cpu",
    "gsm8k_rho1b": "gsm8k_rho1b_sft",
    "gsm8k_rho1b_700": "gsm8k_rho1b_sft",
}
"""By the recipe that goes on from there."""


def load(name):
    load_config = load_sft_config if "_sft" in name else load_run_config
    return load_config(ROOT / "configs" / f"{name}.yaml", [])


def value(config, key):
    return reduce(getattr, key.split("."), config)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_loads_says_what_it_is_and_has_a_run_dir_of_its_own(path):
    config = load(path.stem)
    assert isinstance(config, SftConfig if "_sft" in path.stem else RunConfig)
    make_task(config.task)
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert config.run_dir == Path("runs") / path.stem


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings(name):
    config = load(name)
    assert {key: value(config, key) for key in PUBLISHED[name]} == PUBLISHED[name]


@pytest.mark.parametrize(("name", "key"), SCHEDULES)
def test_published_schedules(name, key):
    schedule, expected = value(load(name), key), SCHEDULES[name, key]
    assert {step: schedule(step) for step in expected} == pytest.approx(expected)


def test_the_headline_differs_from_the_longer_run_in_beta_and_length_only():
    long, headline = load("gsm8k_rho1b"), load("gsm8k_rho1b_700")
    changed = {"run_dir", "objective", "trainer"}
    assert long.model_dump(exclude=changed) == headline.model_dump(exclude=changed)
    trainer = {"steps", "learning_rate"}
    assert long.trainer.model_dump(exclude=trainer) == headline.trainer.model_dump(exclude=trainer)


@pytest.mark.parametrize(("recipe", "warm_up"), WARM_UPS.items())
def test_a_warm_up_has_the_prompts_of_what_goes_on_from_it(recipe, warm_up):
    assert make_task(load(recipe).task).options == make_task(load(warm_up).task).options


def test_the_small_recipe_starts_where_its_warm_up_ends():
    warm_up, recipe = load("gsm8k_smollm2_sft_cpu"), load("gsm8k_smollm2_cpu")
    assert recipe.model.path == str(warm_up.run_dir / "final")
    assert recipe.model.reference == warm_up.model.path


def test_prompts_are_those_that_the_models_were_made_for(data_dir):
    rho, qwen = load("gsm8k_rho1b").task, load("math_qwen25_7b_tba_prime").task
    gsm8k = {split: str(data_dir / f"gsm8k_{split}.jsonl") for split in ("train", "test")}
    prompt = make_task(rho.model_copy(update={"options": {**rho.options, **gsm8k}})).prompt("train", 0)
    assert prompt.text.startswith("[MATH_TASK] Problem:\nNatalia sold clips to 48 of her friends in April")
    assert prompt.text.endswith("in April and May?\n\nSolution:")
    test = {"test": str(data_dir / "math500_test.jsonl")}
    prompt = make_task(qwen.model_copy(update={"options": {**qwen.options, **test}})).prompt("test", 0)
    assert prompt.messages[0] == Message(
        "system", "Please reason step by step, and put your final answer within \\boxed{}."
    )
    assert [message.role for message in prompt.messages] == ["system", "user"]


def test_countdown_asks_in_a_conversation():
    task = make_task(load("countdown_qwen3_4b").task)
    [message] = task.problem_of({"numbers": [3, 5, 7], "target": 26}).messages
    assert message.role == "user"
    assert message.content.startswith("Using the numbers [3, 5, 7], create an equation that equals 26.")


@pytest.mark.parametrize("script", BATCH, ids=lambda path: path.name)
def test_a_batch_script_has_ranks_that_its_recipe_can_use(script):
    text = script.read_text(encoding="utf-8")
    [recipe] = re.findall(r"^(?:train|sft) configs/(\w+)\.yaml", text, flags=re.MULTILINE)
    components = [
        {key: int(number) for key, number in re.findall(r"^#SBATCH --([\w-]+)=(\d+)$", part, flags=re.MULTILINE)}
        for part in text.split("#SBATCH hetjob")
    ]
    ranks = sum(c["nodes"] * c["ntasks-per-node"] if "ntasks-per-node" in c else c["ntasks"] for c in components)
    config = load(recipe)
    if isinstance(config, SftConfig):
        assert ranks == 1
    else:
        config.check_world(ranks)
    assert all(c.get("gpus-per-node", 0) in (0, c.get("ntasks-per-node")) for c in components)
    assert ("gpus-per-node" in components[0]) == (config.model.dtype == "bfloat16")
