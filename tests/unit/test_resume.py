import shutil
from pathlib import Path

import pytest
import yaml
from tiny import tiny_settings

from tba_hpc.attempt import AUTO
from tba_hpc.checkpoint import Checkpoint as Saved
from tba_hpc.checkpoint import CheckpointState, PromptState
from tba_hpc.checkpoint_folder import write_checkpoint
from tba_hpc.config import RunConfig
from tba_hpc.prompts import PromptOrder
from tba_hpc.resume import _check_compatible, prepare_start
from tba_hpc.run_dir import RunDir
from tba_hpc.settings import ConfigError, read_yaml, to_yaml, validate

SIZE = 40
PROMPTS = PromptState.of(PromptOrder.of(SIZE, 3), [4, 8, 5])


@pytest.fixture
def make(tmp_path):
    """A configuration of a run in `tmp_path / "run"`; changes are by dotted path."""

    def make(**changes):
        settings = tiny_settings("model", tmp_path / "run")
        for key, value in changes.items():
            *path, last = key.split("__")
            place = settings
            for part in path:
                place = place.setdefault(part, {})
            place[last] = value
        return validate(RunConfig, settings, "")

    return make


def save(config: RunConfig, step: int) -> Path:
    """A checkpoint of a run with this configuration."""
    state = CheckpointState.of_new_run(PROMPTS).model_copy(update={"step": step})
    return write_checkpoint(
        RunDir(config.run_dir).checkpoints, step, lambda folder: Saved(folder).write_state(state, to_yaml(config), {})
    )


def attempt(config, resume=AUTO, overwrite=False, n_prompts=SIZE):
    return prepare_start(config, resume, overwrite, n_prompts)


def test_without_a_checkpoint_auto_begins_a_run(make):
    start = attempt(make())
    assert (start.attempt, start.checkpoint, start.open()) == (1, None, None)
    assert RunDir(make().run_dir).config.exists()


def test_an_attempt_that_died_before_its_first_checkpoint_is_begun_again(make):
    config = make()
    attempt(config)
    RunDir(config.run_dir).metrics.write_text('{"step": 1}\n')
    with pytest.raises(ConfigError, match="already holds a run"):
        attempt(config, resume=None)
    start = attempt(config)
    assert (start.attempt, start.checkpoint) == (2, None)
    assert not RunDir(config.run_dir).metrics.exists()
    assert [log.name for log in RunDir(config.run_dir).logs.iterdir()] != []


def test_auto_goes_on_from_the_newest_checkpoint(make):
    config = make()
    attempt(config)
    paths = [save(config, step) for step in (2, 4)]
    RunDir(config.run_dir).metrics.write_text("".join(f'{{"step": {step}}}\n' for step in range(1, 7)))
    start = attempt(config)
    assert (start.attempt, start.checkpoint) == (2, paths[1])
    assert start.open().state().step == 4
    assert len(RunDir(config.run_dir).metrics.read_text().splitlines()) == 4


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_used(make, caplog):
    config = make()
    attempt(config)
    older, newer = save(config, 2), save(config, 4)
    (newer / "state.json").write_text("{}")
    assert attempt(config).checkpoint == older
    assert "state.json is not as it was written" in caplog.text
    assert sorted(path.name for path in older.parent.iterdir()) == ["step_00000002", "step_00000004.set-aside"]


def test_a_run_that_has_finished_is_left_as_it_is(make):
    config = make()
    attempt(config)
    save(config, 6)
    RunDir(config.run_dir).write_report('{"steps": 6}')
    assert attempt(config) is None
    assert RunDir(config.run_dir).report.exists()


def test_a_finished_run_may_get_more_steps(make):
    config = make()
    attempt(config)
    path = save(config, 6)
    RunDir(config.run_dir).write_report('{"steps": 6}')
    assert attempt(make(trainer__steps=9)).checkpoint == path
    assert not RunDir(config.run_dir).report.exists()


def test_a_finished_run_stays_so_whatever_became_of_its_last_checkpoint(make):
    config = make()
    attempt(config)
    save(config, 4)
    (save(config, 6) / "state.json").unlink()
    RunDir(config.run_dir).write_report('{"steps": 6}')
    assert attempt(config) is None
    assert attempt(make(trainer__steps=3)) is None


def test_fewer_steps_than_were_done_are_refused(make):
    attempt(make())
    save(make(), 4)
    with pytest.raises(ConfigError, match=r"trainer.steps = 3, but the run has done 4 already"):
        attempt(make(trainer__steps=3))


def test_a_run_that_died_after_its_last_step_is_brought_to_its_end(make):
    config = make()
    attempt(config)
    path = save(config, 6)
    assert attempt(config).checkpoint == path


def test_a_finished_run_without_its_checkpoints_is_left_as_it_is(make):
    config = make()
    attempt(config)
    shutil.rmtree(save(config, 6).parent)
    RunDir(config.run_dir).write_report('{"steps": 6}')
    with pytest.raises(ConfigError, match="holds a finished run but none of its checkpoints"):
        attempt(make(trainer__steps=9))
    RunDir(config.run_dir).write_report('{"steps": 6}')
    assert attempt(config) is None
    assert RunDir(config.run_dir).report.exists()


def test_where_no_checkpoint_can_be_used_nothing_is_deleted(make):
    config = make()
    attempt(config)
    for step in (2, 4):
        (save(config, step) / "manifest.json").write_text('{"format": 0, "files": {}}')
    before = sorted(config.run_dir.rglob("*"))
    with pytest.raises(ConfigError, match=r"--resume auto: none of the checkpoints can be used:(.|\n)*has format 0"):
        attempt(config)
    assert sorted(config.run_dir.rglob("*")) == before


def test_a_checkpoint_of_another_run_may_begin_a_new_one(make, tmp_path):
    config = make()
    attempt(config)
    path = save(config, 4)
    other = make(run_dir=str(tmp_path / "other"))
    start = attempt(other, resume=str(path))
    assert (start.attempt, start.checkpoint) == (1, tmp_path / "other" / "checkpoints" / "step_00000004")
    shutil.rmtree(config.run_dir)
    again = attempt(other)
    assert (again.attempt, again.checkpoint) == (2, start.checkpoint)
    with pytest.raises(ConfigError, match=r"already holds a run \(checkpoints\)"):
        attempt(other, resume=None)


def test_an_older_checkpoint_of_the_run_may_be_chosen(make):
    config = make()
    attempt(config)
    older, newer = save(config, 2), save(config, 4)
    link = config.run_dir / "link"
    link.symlink_to(older)
    assert attempt(config, resume=str(link)).checkpoint == older
    assert sorted(path.name for path in older.parent.iterdir()) == [older.name, f"{newer.name}.set-aside"]


def test_one_that_was_set_aside_must_be_given_a_name_first(make):
    config = make()
    attempt(config)
    older, newer = save(config, 2), save(config, 4)
    aside = newer.rename(newer.with_name(newer.name + ".set-aside"))
    with pytest.raises(ConfigError, match=r"give it a name like step_00000100 first"):
        attempt(config, resume=str(aside))
    assert sorted(older.parent.iterdir()) == [older, aside]


def test_a_checkpoint_that_is_named_must_be_good(make, tmp_path):
    config = make()
    attempt(config)
    path = save(config, 4)
    with pytest.raises(ConfigError, match=r"--resume .*missing has no manifest.json"):
        attempt(config, resume=str(tmp_path / "missing"))
    (path / "config.yaml").unlink()
    with pytest.raises(ConfigError, match=r"--resume .*config.yaml cannot be read: No such file"):
        attempt(config, resume=str(path))


def test_a_refused_start_leaves_a_save_that_is_under_way_alone(make):
    config = make()
    attempt(config)
    path = save(config, 4)
    (path.parent / "step_00000006.tmp").mkdir()
    for refused in (lambda: attempt(config, resume=None), lambda: attempt(make(seed=9))):
        with pytest.raises(ConfigError):
            refused()
    assert (path.parent / "step_00000006.tmp").exists()
    assert RunDir(config.run_dir).latest_attempt == 1


FIXED = {
    "seed": 4,
    "schedule": "synchronous",
    "model.path": "other",
    "model.reference": "other",
    "model.dtype": "bfloat16",
    "task.options": {"max_operand": 5},
    "rollout.temperature": 0.5,
    "buffer.deduplicate": False,
}


@pytest.mark.parametrize("key", FIXED)
def test_what_cannot_change_is_refused_with_both_values(make, key):
    config = make()
    attempt(config)
    save(config, 4)
    before = sorted(config.run_dir.rglob("*"))
    changed = make(**{key.replace(".", "__"): FIXED[key]})
    saved, now = (
        yaml.safe_load(to_yaml(settings)) if "." not in key else yaml.safe_load(to_yaml(settings))[key.split(".")[0]]
        for settings in (config, changed)
    )
    name = key.split(".")[-1]
    with pytest.raises(ConfigError) as refusal:
        attempt(changed)
    assert f"{key} was {saved[name]!r} and is now {now[name]!r}" in str(refusal.value)
    assert "set them back, or start another run in another run_dir" in str(refusal.value)
    assert sorted(config.run_dir.rglob("*")) == before


def test_another_task_size_is_refused_with_both_values(make):
    config = make()
    attempt(config)
    save(config, 4)
    with pytest.raises(ConfigError, match="the task had 40 training prompts and now has 41"):
        attempt(config, n_prompts=41)


FREE = {
    "trainer__steps": 50,
    "distributed__trainers": 2,
    "distributed__timeout_seconds": 5,
    "buffer__memory_limit": "1kB",
    "buffer__capacity": 500,
    "trainer__micro_batch_tokens": 64,
    "trainer__sync_every": 3,
    "checkpoint__every_steps": 7,
    "logging__samples": 0,
}


@pytest.mark.parametrize("key", FREE)
def test_other_settings_may_change(make, key):
    attempt(make())
    path = save(make(), 4)
    assert attempt(make(**{key: FREE[key]})).checkpoint == path
    assert attempt(make()).attempt == 3


def test_a_synchronous_run_keeps_the_rhythm_of_its_syncs(make):
    config = make(schedule="synchronous")
    attempt(config)
    save(config, 4)
    with pytest.raises(ConfigError, match=r"trainer.sync_every was 2 and is now 3"):
        attempt(make(schedule="synchronous", trainer__sync_every=3))


def test_a_bound_on_reuse_keeps_its_meaning(make):
    config = make(trainer__max_reuse=1.0)
    attempt(config)
    save(config, 4)
    with pytest.raises(ConfigError, match=r"trainer.batch_size was 16 and is now 32"):
        attempt(make(trainer__max_reuse=1.0, trainer__batch_size=32))


def test_a_synchronous_run_that_ended_between_two_syncs_is_not_extended(make):
    config = make(schedule="synchronous", trainer__steps=5)
    attempt(config)
    save(config, 5)
    with pytest.raises(ConfigError, match="ended after step 5, between two syncs"):
        attempt(make(schedule="synchronous", trainer__steps=9))
    assert attempt(config).checkpoint


def test_what_a_crash_left_behind_is_cleared_away(make):
    config = make()
    attempt(config)
    path = save(config, 4)
    (path.parent / "step_00000006.tmp").mkdir()
    attempt(config)
    assert [entry.name for entry in path.parent.iterdir()] == ["step_00000004"]


def test_a_new_run_divides_the_prompts_among_its_searchers(make):
    prompts = attempt(make()).state(SIZE, 2).prompts
    assert prompts.taken == (0, 0)
    assert prompts.order(3).share(0, 2).take(SIZE) == PromptOrder.of(SIZE, 3).share(0, 2).take(SIZE)


def test_as_many_searchers_as_before_go_on_with_their_shares(make):
    attempt(make())
    save(make(), 4)
    assert attempt(make()).state(SIZE, 3).prompts == PROMPTS


@pytest.mark.parametrize("n_searchers", [1, 2, 4])
def test_another_number_of_searchers_divides_what_is_left(make, n_searchers):
    attempt(make())
    save(make(), 4)
    state = attempt(make()).state(SIZE, n_searchers)
    assert state.step == 4
    assert state.prompts.taken == (0,) * n_searchers
    order = state.prompts.order(3)
    assert (len(order.backlog), order.epoch, order.division) == (SIZE - 17, 1, 1)


def test_a_checkpoint_from_before_there_was_a_setting_is_good(make):
    config = make(schedule="synchronous")
    attempt(config)
    path = save(config, 4)
    file = path / "config.yaml"
    assert "  lag: 0\n" in file.read_text()
    file.write_text(file.read_text().replace("  lag: 0\n", ""))
    before = RunConfig.model_validate(read_yaml(file))
    assert before == config
    _check_compatible(config, Saved(path), Saved(path).state(), SIZE)
