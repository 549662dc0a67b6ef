"""The settings of each objective: those that mean something to it, and what is said of others."""

from __future__ import annotations

import math

import pytest
import yaml
from tiny import tiny_settings

from tba_hpc.config import RunConfig
from tba_hpc.objectives import OBJECTIVES
from tba_hpc.settings import ConfigError, apply_overrides, to_yaml, validate

NAMES = "dr_grpo, grpo, kimi, online_dpo, proximal_rloo, reinforce, rloo, sft, tb_vargrad"


def load(*overrides):
    return validate(RunConfig, apply_overrides(tiny_settings("model", "run"), list(overrides)), "run.yaml")


def refusal(*overrides):
    with pytest.raises(ConfigError) as caught:
        load(*overrides)
    return str(caught.value).removeprefix("run.yaml:\n  ")


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_made_from_the_settings_of_a_run_for_another(name):
    config = load(f"objective.name={name}")
    assert config.objective.name == name
    assert config.objective.beta(0) == load().objective.beta(0)
    assert isinstance(OBJECTIVES[name](config.objective), OBJECTIVES[name])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_resolved_settings_load_again(name):
    config = load(f"objective.name={name}", *(["objective.clip=[1.0, .inf]"] if "grpo" in name else []))
    assert validate(RunConfig, yaml.safe_load(to_yaml(config)), "config.yaml") == config


def test_without_a_name_it_is_trajectory_balance():
    settings = tiny_settings("model", "run")
    settings["objective"] = {"beta": {"kind": "constant", "value": 0.1}, "log_ratio_limit": 2}
    config = validate(RunConfig, settings, "run.yaml")
    assert (config.objective.name, config.objective.log_ratio_limit) == ("tb_vargrad", 2)


@pytest.mark.parametrize(
    ("word", "clip"),
    [("0.3", (0.3, 0.3)), ("[0.2, 0.28]", (0.2, 0.28)), ("[1, .inf]", (1.0, math.inf)), ("1", (1.0, 1.0))],
)
def test_a_clip_range_is_one_number_or_two(word, clip):
    assert load("objective.name=grpo", f"objective.clip={word}").objective.clip == clip


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"tb_vargrad", "online_dpo"}))
def test_beta_may_be_or_become_0_where_nothing_is_divided_by_it(name):
    assert load(f"objective.name={name}", "objective.beta.value=0").objective.beta(0) == 0
    falling = "objective.beta={kind: linear, start: 0.1, end: 0, steps: 5}"
    assert load(f"objective.name={name}", falling).objective.beta(5) == 0


@pytest.mark.parametrize("name", ["tb_vargrad", "online_dpo"])
@pytest.mark.parametrize(
    "beta", ["{kind: constant, value: 0}", "{kind: linear, start: 0, end: 0.1, steps: 5}"], ids=["is", "starts at"]
)
def test_beta_stays_above_0_where_the_posterior_divides_by_it(name, beta):
    text = refusal(f"objective.name={name}", f"objective.beta={beta}")
    assert text.startswith("objective.beta = {")
    assert text.endswith("}: β has to stay above 0, as the posterior π_ref · exp(r/β) divides by it")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["objective.name=grpoo"], f"objective.name = 'grpoo': no such name; did you mean 'grpo'? allowed: {NAMES}"),
        (["objective.name="], f"objective.name = 'None': no such name; allowed: {NAMES}"),
        (
            ["objective.name=grpo", "objective.clp=0.2"],
            "objective.clp = 0.2: no such setting; did you mean 'clip'? allowed: beta, clip, name",
        ),
        (
            ["objective.clip=0.2"],
            "objective.clip = 0.2: no such setting; allowed: beta, importance_ratio, log_ratio_limit, name",
        ),
        (
            ["objective.name=rloo", "objective.log_ratio_limit=1"],
            "objective.log_ratio_limit = 1: no such setting; allowed: beta, name",
        ),
        (
            ["objective.name=sft", "objective.minimum_reward=1"],
            "objective.minimum_reward = 1: no such setting; did you mean 'min_reward'? allowed: beta, min_reward, name",
        ),
        (
            ["objective.name=kimi", "objective.beta.valu=1"],
            "objective.beta.valu = 1: no such setting; did you mean 'value'? allowed: kind, value",
        ),
        (["objective={name: kimi}"], "objective.beta is missing"),
        (
            ["objective.name=grpo", "objective.clip=1.5"],
            "objective.clip.0 = 1.5: Input should be less than or equal to 1",
        ),
        (
            ["objective.name=grpo", "objective.clip=[0.2, 0]"],
            "objective.clip.1 = 0: Input should be greater than 0",
        ),
        (
            ["objective.name=grpo", "objective.clip=[0.2, .nan]"],
            "objective.clip.1 = nan: Input should be greater than 0",
        ),
        (["objective.name=grpo", "objective.clip=wide"], "objective.clip = 'wide': Input should be a valid tuple"),
        (["objective=grpo"], "objective = 'grpo': Input should be a valid dictionary or object to extract fields from"),
    ],
)
def test_a_mistake_is_named_with_what_there_is(overrides, message):
    assert refusal(*overrides) == message
