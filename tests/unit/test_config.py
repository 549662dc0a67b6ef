import copy
import math
import re

import pytest
import yaml
from tiny import tiny_settings

from tba_hpc.config import RunConfig, SftConfig, load_run_config, load_sft_config
from tba_hpc.schedules import Constant
from tba_hpc.settings import ConfigError, to_yaml, validate


def settings_with(**changes):
    """The settings of a good run with `a__b=value` changes; a value of None takes the key away."""
    settings = copy.deepcopy(tiny_settings("model", "run"))
    for key, value in changes.items():
        *path, name = key.split("__")
        here = settings
        for part in path:
            here = here.setdefault(part, {})
        here[name] = value
        if value is None:
            del here[name]
    return settings


def refusal(**changes):
    with pytest.raises(ConfigError) as caught:
        validate(RunConfig, settings_with(**changes), "run.yaml")
    first, *mistakes = str(caught.value).splitlines()
    assert first == "run.yaml:"
    return "\n".join(line.strip() for line in mistakes)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("sched", "schedule"),
        ("rundir", "run_dir"),
        ("model__pth", "path"),
        ("task__option", "options"),
        ("rollout__temprature", "temperature"),
        ("rollout__exploration__frction", "fraction"),
        ("buffer__most_on_polcy", "most_on_policy"),
        ("objective__bta", "beta"),
        ("objective__beta__valu", "value"),
        ("trainer__learning_rate__valeu", "value"),
        ("trainer__step", "steps"),
        ("distributed__timeout", "timeout_seconds"),
        ("evaluation__problem", "problems"),
        ("logging__sample", "samples"),
    ],
)
def test_a_misspelt_key_is_named_with_its_nearest_match(key, nearest):
    text = refusal(**{key: 1})
    line = next(line for line in text.splitlines() if "no such setting" in line)
    assert line.startswith(f"{key.replace('__', '.')} = 1: no such setting; did you mean {nearest!r}? allowed: ")


def test_a_key_that_resembles_nothing_gets_the_list_of_what_there_is():
    assert refusal(qqq=1) == (
        "qqq = 1: no such setting; allowed: buffer, checkpoint, distributed, evaluation, launch, logging, model, "
        "objective, reference, rollout, run_dir, schedule, seed, task, trainer"
    )


def test_keys_of_a_schedule_are_those_of_its_kind():
    beta = {"kind": "linear", "start": 1, "end": 0.1, "step": 5}
    assert "did you mean 'steps'? allowed: end, kind, start, steps" in refusal(objective__beta=beta)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("trainer__steps", "many", "valid integer"),
        ("trainer__steps", 2.5, "valid integer"),
        ("trainer__steps", 0, "greater than 0"),
        ("trainer__learning_rate", "fast", "valid dictionary"),
        ("trainer__learning_rate", True, "valid dictionary"),
        ("rollout__stop", 3, "valid tuple"),
        ("trainer__max_sync_delay", -1, "greater than or equal to 0"),
        ("rollout__temperature", 0, "greater than 0"),
        ("rollout__top_p", 1.5, "less than or equal to 1"),
        ("buffer__most_on_policy", 1.2, "less than or equal to 1"),
        ("buffer__memory_limit", "4 parsecs", "could not interpret byte unit"),
        ("distributed__timeout_seconds", "soon", "valid number"),
        ("schedule", "sometimes", "'asynchronous', 'synchronous' or 'fixed_lag'"),
        ("model__dtype", "int8", "'float32'"),
        ("seed", -1, "greater than or equal to 0"),
        ("trainer__steps", True, "valid integer"),
        ("rollout__queries_per_batch", False, "valid integer"),
        ("buffer__segment_bytes", 0, "greater than 0"),
        ("distributed__chunk_bytes", 0, "greater than 0"),
        ("distributed__bucket_bytes", 0, "greater than 0"),
        ("trainer__max_reuse", math.inf, "finite number"),
        ("trainer__weight_decay", math.inf, "finite number"),
        ("rollout__temperature", math.inf, "finite number"),
        ("distributed__timeout_seconds", math.inf, "finite number"),
        ("evaluation__timeout_seconds", math.inf, "finite number"),
        ("model", "checkpoint", "valid dictionary"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(key, value, message):
    text = refusal(**{key: value})
    assert text.startswith(f"{key.replace('__', '.')} = {value!r}: ")
    assert message in text


def test_a_number_is_a_constant_schedule_and_a_text_a_list_of_one():
    config = RunConfig.model_validate(settings_with(objective__beta=0.1, trainer__learning_rate=1, rollout__stop="Q:"))
    assert (config.objective.beta, config.trainer.learning_rate) == (Constant(value=0.1), Constant(value=1.0))
    assert config.rollout.stop == ("Q:",)


def test_an_unknown_kind_of_schedule_is_told_the_kinds_there_are():
    text = refusal(objective__beta={"kind": "cosine", "value": 1})
    assert text.startswith("objective.beta.kind = 'cosine': no such kind; ")
    assert text.endswith("allowed: constant, linear, linear_cut")


def test_a_schedule_of_no_kind_is_told_the_kinds_there_are():
    text = refusal(objective__beta={"value": 1})
    assert text == "objective.beta.kind is missing; allowed: constant, linear, linear_cut"


def test_what_is_missing_is_named():
    assert refusal(trainer__steps=None, run_dir=None).splitlines() == ["run_dir is missing", "trainer.steps is missing"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainer__batch_size": 18}, "trainer.batch_size = 18 is not a multiple of trainer.samples_per_query = 4"),
        (
            {"distributed__trainers": 5},
            "trainer.batch_size = 16 holds 4 queries, fewer than distributed.trainers = 5: "
            "a trainer would have nothing to do",
        ),
        ({"buffer__max_per_query": 3}, "buffer.max_per_query = 3 is below trainer.samples_per_query = 4: "),
        ({"rollout__samples_per_query": 3}, "rollout.samples_per_query = 3 is below trainer.samples_per_query = 4: "),
        ({"buffer__start_size": 10_001}, "buffer.start_size = 10001 is above buffer.capacity = 10000: "),
        (
            {"checkpoint": {"every_steps": 20, "pin_every": 50}},
            "checkpoint.pin_every = 50 is not a multiple of checkpoint.every_steps = 20",
        ),
        (
            {"checkpoint": {"every_steps": None, "pin_every": 50}},
            "checkpoint.pin_every = 50 is not a multiple of checkpoint.every_steps = None",
        ),
        (
            {"schedule": "synchronous", "trainer__sync_every": 4, "checkpoint": {"every_steps": 10, "pin_every": 10}},
            "checkpoint.pin_every = 10 is not a multiple of trainer.sync_every = 4, but with schedule = synchronous",
        ),
        ({"schedule": "fixed_lag"}, "trainer.lag = 0 with schedule = fixed_lag: fixed_lag needs a lag"),
        (
            {"trainer__lag": 2},
            "trainer.lag = 2 with schedule = asynchronous: fixed_lag needs a lag, the others have none",
        ),
        (
            {"schedule": "fixed_lag", "trainer__lag": 3, "trainer__sync_every": 2},
            "trainer.lag = 3 is not a multiple of trainer.sync_every = 2",
        ),
        (
            {"reference": {"reset_every": 5}, "trainer__sync_every": 2},
            "reference.reset_every = 5 is not a multiple of trainer.sync_every = 2: ",
        ),
        (
            {
                "schedule": "fixed_lag",
                "trainer__lag": 2,
                "trainer__sync_every": 2,
                "reference": {"reset_every": 2, "stale": "drop"},
            },
            "reference.stale = drop would leave schedule = fixed_lag without data after a reset: use recompute",
        ),
        (
            {"schedule": "synchronous", "buffer__capacity": 20, "buffer__start_size": 5},
            "buffer.capacity = 20 is below the trajectories of a step with schedule = synchronous: ",
        ),
        (
            {"trainer__learning_rate": {"kind": "constant", "value": 0}},
            "trainer.learning_rate is 0 throughout",
        ),
        ({"objective__importance_ratio": [2, 1]}, "importance_ratio = [2.0, 1.0] is not in ascending order"),
        (
            {"evaluation": {"every_steps": 5, "problems": 0}},
            "evaluation.every_steps = 5, but evaluation.problems = 0",
        ),
        ({"rollout__exploration": {"fraction": 0.5, "temperature": [2, 1]}}, "temperature = [2.0, 1.0] is not in asc"),
        (
            {"rollout__exploration": {"fraction": 0.5, "temperature": [1, 2], "top_p": [0, 1]}},
            "top_p = [0.0, 1.0] is not within (0, 1]",
        ),
        (
            {"trainer__learning_rate": {"kind": "warmup_stable_decay", "peak": 1, "stable": 0}},
            "warmup, stable and decay are all 0",
        ),
        (
            {
                "trainer__learning_rate": {
                    "kind": "warmup_stable_decay",
                    "peak": 1,
                    "warmup": 1,
                    "stable": 2,
                    "decay": 2,
                }
            },
            "trainer.learning_rate is down to 0 after 5 steps: too few for trainer.steps = 6",
        ),
        (
            {"trainer__learning_rate": {"kind": "linear", "start": 1, "end": 0, "steps": 5}},
            "trainer.learning_rate is down to 0 after 5 steps: too few for trainer.steps = 6",
        ),
        (
            {"trainer__learning_rate": {"kind": "linear", "start": 0, "end": 0, "steps": 5}},
            "start and end are both 0: the value would be 0 throughout",
        ),
        ({"trainer__adam_betas": [0.9, 1.0]}, "trainer.adam_betas.1 = 1.0: Input should be less than 1"),
        (
            {"trainer__adam_betas": [-0.1, 0.9]},
            "trainer.adam_betas.0 = -0.1: Input should be greater than or equal to 0",
        ),
        ({"objective__beta": {"kind": "constant", "value": math.inf}}, "Input should be a finite number"),
        ({"model__attention": "flash_attention_2"}, "attention = flash_attention_2 does not work in float32"),
    ],
)
def test_a_combination_that_cannot_work_is_refused(changes, message):
    assert message in refusal(**changes)


@pytest.mark.parametrize(
    "learning_rate",
    [
        {"kind": "warmup_stable_decay", "peak": 1, "warmup": 1, "stable": 2, "decay": 3},
        {"kind": "warmup_stable_decay", "peak": 1, "stable": 100},
        {"kind": "linear", "start": 1, "end": 0, "steps": 6},
        {"kind": "linear", "start": 1, "end": 0.1, "steps": 2},
        {"kind": "linear", "start": 0, "end": 1, "steps": 2},
    ],
)
def test_a_learning_rate_that_lasts_as_long_as_the_run_is_accepted(learning_rate):
    validate(RunConfig, settings_with(trainer__learning_rate=learning_rate), "")


def test_all_mistakes_are_reported_at_once():
    assert len(refusal(trainer__batch_size=6, buffer__max_per_query=1, distributed__trainers=2).splitlines()) == 3
    assert len(refusal(seeed=1, trainer__steps="x", model__pth="y").splitlines()) == 3


@pytest.mark.parametrize(
    ("ranks", "changes", "message"),
    [
        (1, {}, "a run needs at least 2 ranks, a trainer and a searcher; this world has 1"),
        (0, {}, "this world has 0"),
        (2, {"distributed__trainers": 2}, "distributed.trainers = 2 leaves no searcher among 2 ranks"),
        (
            4,
            {"distributed__searchers": 2},
            "distributed.trainers = 1 and distributed.searchers = 2 need 3 ranks; this world has 4",
        ),
    ],
)
def test_a_world_that_does_not_fit_is_refused(ranks, changes, message):
    config = validate(RunConfig, settings_with(**changes), "run.yaml")
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        config.check_world(ranks)


def test_a_world_that_fits_is_accepted():
    validate(RunConfig, settings_with(), "").check_world(2)
    validate(RunConfig, settings_with(distributed__trainers=2, distributed__searchers=2), "").check_world(4)


@pytest.mark.parametrize("n_searchers", [1, 2, 3, 7, 20])
def test_searchers_share_what_the_trainer_needs_until_the_next_sync(n_searchers):
    config = validate(RunConfig, settings_with(), "")
    shares = [config.lockstep_queries(i, n_searchers) for i in range(n_searchers)]
    assert sum(shares) == 2 * 4  # sync_every × queries of a batch
    assert max(shares) - min(shares) <= 1


def test_others_are_more_patient_with_trainer_0_than_it_is_itself():
    config = validate(RunConfig, settings_with(distributed__timeout_seconds=10, evaluation__timeout_seconds=7), "")
    assert config.patience_seconds > 7 + 5 * 10  # an evaluation, the data, and a publish that is late


def test_the_resolved_configuration_loads_again(tmp_path):
    exploration = {"fraction": 0.25, "temperature": [0.7, 2.0]}
    config = validate(RunConfig, settings_with(rollout__exploration=exploration, buffer__memory_limit="3MiB"), "")
    assert config.buffer.memory_limit == 3 * 2**20
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(config))
    assert load_run_config(file, []) == config
    assert yaml.safe_load(file.read_text())["distributed"]["trainers"] == 1


def test_no_clipping_survives_every_way_that_a_configuration_travels(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings_with()))
    config = load_run_config(file, ["trainer.max_grad_norm=.inf"])
    assert config.trainer.max_grad_norm == math.inf
    assert RunConfig.model_validate_json(config.model_dump_json()) == config
    file.write_text(to_yaml(config))
    assert load_run_config(file, []) == config


def test_the_resolved_configuration_names_the_same_model_in_another_folder(tmp_path, monkeypatch):
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings_with()))
    monkeypatch.chdir(tmp_path)
    config = load_run_config(file, ["model.path=./final", "model.reference=models/x"])
    copy = tmp_path / "elsewhere" / "config.yaml"
    copy.parent.mkdir()
    copy.write_text(to_yaml(config))
    assert load_run_config(copy, []) == config
    assert config.model.path == str(tmp_path / "final")
    assert config.model.reference == "models/x"


def test_a_configuration_cannot_be_changed():
    config = validate(RunConfig, settings_with(), "")
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 4


SFT = {
    "run_dir": "run",
    "task": {"name": "arithmetic"},
    "training": {
        "max_steps": 1,
        "batch_size": 2,
        "evaluate_every": 1,
        "learning_rate": {"kind": "constant", "value": 1},
    },
    "max_response_tokens": 4,
}
SHORT = {"kind": "warmup_stable_decay", "peak": 1, "stable": 2}


@pytest.mark.parametrize("start", [{}, {"init": {}, "model": {"path": "x"}}])
def test_fine_tuning_starts_from_exactly_one_thing(tmp_path, start):
    file = tmp_path / "sft.yaml"
    file.write_text(yaml.safe_dump({**SFT, **start}))
    with pytest.raises(ConfigError, match=r"either model .* or init"):
        load_sft_config(file, [])
    assert isinstance(validate(SftConfig, {**SFT, "init": {}}, ""), SftConfig)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"path": "x", "reference": "y"}}, "model.reference is set"),
        (
            {"training": {**SFT["training"], "max_steps": 3, "learning_rate": SHORT}, "init": {}},
            "training.learning_rate is down to 0 after 2 steps: too few for training.max_steps = 3",
        ),
    ],
)
def test_fine_tuning_that_cannot_work_as_asked_is_refused(changes, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        validate(SftConfig, {**SFT, **changes}, "sft.yaml")
