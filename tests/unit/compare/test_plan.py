import pytest
import yaml
from tiny import tiny_settings

from tba_hpc.compare.plan import Variant, plan, variants
from tba_hpc.settings import ConfigError


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "run.yaml"
    settings = tiny_settings("model", "run")
    settings["evaluation"]["every_steps"] = 2
    file.write_text(yaml.safe_dump(settings))
    return file


def test_each_objective_runs_with_each_schedule_or_its_own():
    assert variants(["tb_vargrad", "grpo"], ["asynchronous", "synchronous"]) == [
        Variant("tb_vargrad", "asynchronous"),
        Variant("tb_vargrad", "synchronous"),
        Variant("grpo", "asynchronous"),
        Variant("grpo", "synchronous"),
    ]
    assert variants(["tb_vargrad:asynchronous", "grpo", "grpo"], ["synchronous"]) == [
        Variant("tb_vargrad", "asynchronous"),
        Variant("grpo", "synchronous"),
    ]


@pytest.mark.parametrize(
    ("objectives", "schedules", "message"),
    [(["grpo"], [], "Give --schedules, or grpo:synchronous"), ([], ["synchronous"], "nothing to compare")],
)
def test_too_little_to_compare(objectives, schedules, message):
    with pytest.raises(ConfigError, match=message):
        variants(objectives, schedules)


def test_runs_differ_in_what_is_compared_only(config, tmp_path):
    compared = variants(["tb_vargrad"], ["asynchronous", "synchronous"])
    runs = plan(config, compared, [3, 4], tmp_path / "a b", 4, ["trainer.steps=8"])
    assert [(run.variant.schedule, run.seed) for run in runs] == [
        ("asynchronous", 3),
        ("synchronous", 3),
        ("asynchronous", 4),
        ("synchronous", 4),
    ]
    assert len({run.run_dir for run in runs}) == 4
    assert all(run.run_dir.is_relative_to(tmp_path / "a b") for run in runs)
    rest = [run.config.model_dump(exclude={"run_dir", "seed", "schedule"}) for run in runs]
    assert all(values == rest[0] for values in rest)
    assert rest[0]["trainer"]["steps"] == 8
    assert [(run.config.schedule, run.config.seed) for run in runs] == [(r.variant.schedule, r.seed) for r in runs]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["evaluation.every_steps=null"], "set evaluation.every_steps"),
        (["distributed.trainers=4"], "leaves no searcher"),
        (["trainer.stpes=4"], "did you mean 'steps'"),
    ],
)
def test_a_mistake_shows_before_anything_runs(config, tmp_path, overrides, message):
    with pytest.raises(ConfigError, match=message):
        plan(config, [Variant("tb_vargrad", "synchronous")], [0], tmp_path, 4, overrides)


def test_an_objective_that_there_is_not_is_named(config, tmp_path):
    with pytest.raises(ConfigError, match="objective"):
        plan(config, [Variant("tb_vargard", "synchronous")], [0], tmp_path, 4, [])
