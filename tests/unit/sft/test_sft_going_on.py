"""Fine-tuning that is interrupted, killed, damaged, and goes on."""

import json
import shutil
import threading

import pytest
from sft_cases import INIT, Asked, config, run, run_to_end, settings
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from written import metrics, steps_of, weights

from tba_hpc.checkpoint import Checkpoint, CheckpointState, PromptState
from tba_hpc.checkpoint_folder import list_checkpoints, newest, write_checkpoint
from tba_hpc.config import SftConfig
from tba_hpc.interruption import SAVED_EXIT_CODE
from tba_hpc.prompts import PromptOrder
from tba_hpc.settings import ConfigError
from tba_hpc.sft.checkpoint import SftCheckpoint


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The folder of a run that nothing happened to: two evaluations, and a bit more than an epoch."""
    run_dir = tmp_path_factory.mktemp("unbroken")
    run_to_end(config(run_dir))
    return run_dir


@pytest.fixture
def finished(unbroken, tmp_path):
    """A copy of that run: who is refused holds its lock until the error is forgotten."""
    return shutil.copytree(unbroken, tmp_path / "finished")


def lines(run_dir):
    return [{name: value for name, value in line.items() if name != "time"} for line in metrics(run_dir)]


def assert_same(one, other):
    """To the bit, and to the order."""
    assert lines(one) == lines(other)
    assert {name: w.tolist() for name, w in weights(one).items()} == {n: w.tolist() for n, w in weights(other).items()}
    assert json.loads((one / "report.json").read_text()) == json.loads((other / "report.json").read_text())
    board = EventAccumulator(str(one / "tensorboard"), size_guidance={"scalars": 0})
    board.Reload()
    assert [event.step for event in board.Scalars("loss")] == steps_of(one)


def saved(run_dir):
    return newest(run_dir / "checkpoints", SftCheckpoint)


def contents(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_however_often_it_is_interrupted_a_run_becomes_what_it_would_have_been(tmp_path, unbroken):
    """Before the first step, between two, in an evaluation and after it, in that after the last step."""
    stood_at = []
    for look in (1, 3, 4, 1, 2, 5, 4):
        code, output = run(config(tmp_path), "auto", interruption=Asked(look))
        state = saved(tmp_path).state()
        stood_at.append((state.step, state.recorded_steps))
        assert code == SAVED_EXIT_CODE
        assert f"saved after step {state.step} (received SIGUSR1); --resume auto goes on" in output
        assert not (tmp_path / "report.json").exists()
        assert steps_of(tmp_path) == list(range(1, state.recorded_steps + 1))
    assert stood_at == [(0, 0), (2, 2), (4, 3), (4, 3), (4, 3), (4, 4), (6, 5)]
    code, output = run(config(tmp_path), "auto")
    assert code == 0
    assert f"going on from {saved(tmp_path).path}" in output
    assert_same(tmp_path, unbroken)


class Killed(BaseException):
    """The process is gone."""


class Killing(Asked):
    """Ends a run without a word at the n-th look. Has every save completed by the look that follows it."""

    @property
    def signal(self):
        for thread in threading.enumerate():
            if thread.name == "checkpoint":
                thread.join()
        if super().signal:
            raise Killed
        return None


def kill_after_step_5(run_dir):
    """With checkpoints of steps 2 and 4."""
    often = {**settings(run_dir), "checkpoint": {"every_steps": 2}}
    with pytest.raises(Killed):
        run(SftConfig.model_validate(often), "auto", interruption=Killing(9))
    assert steps_of(run_dir) == [1, 2, 3, 4, 5]
    assert [path.name for path in list_checkpoints(run_dir / "checkpoints")] == ["step_00000004", "step_00000002"]


def test_a_run_that_was_killed_loses_nothing_that_was_saved(tmp_path, unbroken):
    kill_after_step_5(tmp_path)
    _, output = run(config(tmp_path), "auto")
    assert "going on from" in output
    assert "step_00000004" in output
    assert_same(tmp_path, unbroken)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_it(tmp_path, unbroken, caplog):
    kill_after_step_5(tmp_path)
    file = tmp_path / "checkpoints" / "step_00000004" / "training_state.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    _, output = run(config(tmp_path), "auto")
    assert "step_00000002" in output
    assert "training_state.safetensors is not as it was written; it is passed over" in caplog.text
    assert_same(tmp_path, unbroken)


def test_an_evaluation_that_was_made_up_for_is_made_up_for_again_by_who_goes_on_from_there(tmp_path, unbroken):
    """Its step stands once all the same."""
    assert run(config(tmp_path), "auto", interruption=Asked(5))[0] == SAVED_EXIT_CODE
    with pytest.raises(Killed):
        run(config(tmp_path), "auto", interruption=Killing(6))
    assert steps_of(tmp_path) == [1, 2, 3, 4, 5]
    run(config(tmp_path), "auto")
    assert_same(tmp_path, unbroken)


def test_a_finished_run_says_so_and_is_left_as_it_is(unbroken):
    before = contents(unbroken)
    code, output = run(config(unbroken), "auto")
    assert (code, output) == (0, f"the run in {unbroken} has finished, with 6 steps\n")
    assert contents(unbroken) == before


def test_a_finished_run_may_get_more_steps(tmp_path, unbroken):
    run_to_end(config(tmp_path, max_steps=4))
    code, _ = run(config(tmp_path), "auto")
    assert code == 0
    assert_same(tmp_path, unbroken)


def test_a_run_that_is_good_enough_has_finished(tmp_path):
    """Also one that died before it could say so."""
    enough = {"evaluation": {"split": "train"}, "max_steps": 60, "stop_at_accuracy": 0.3}
    run_to_end(config(tmp_path, **enough))
    before = {name: (tmp_path / name).read_bytes() for name in ("report.json", "metrics.jsonl")}
    report = json.loads(before["report.json"])
    assert report["steps"] < 60
    assert report["accuracy"] >= 0.3
    assert "has finished" in run(config(tmp_path, **enough), "auto")[1]
    (tmp_path / "report.json").unlink()
    shutil.rmtree(tmp_path / "final")
    assert run(config(tmp_path, **enough), "auto")[0] == 0
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert (tmp_path / "final" / "model.safetensors").exists()


def test_results_that_are_there_are_not_overwritten_unasked(finished):
    before = contents(finished)
    message = r"already holds a run \(metrics.jsonl, .*--resume auto goes on with it, --overwrite deletes it"
    with pytest.raises(ConfigError, match=message):
        run(config(finished))
    assert contents(finished) == before


def test_overwriting_begins_anew(tmp_path, unbroken):
    run_to_end(config(tmp_path, batch_size=4))
    assert run(config(tmp_path), overwrite=True)[0] == 0
    assert_same(tmp_path, unbroken)


def test_a_mistake_costs_no_earlier_run(finished):
    before = contents(finished)
    with pytest.raises(ConfigError, match="max_response_tokens = 1"):
        run(config(finished).model_copy(update={"max_response_tokens": 1}), overwrite=True)
    assert contents(finished) == before


def test_a_checkpoint_of_another_run_may_begin_a_new_one(tmp_path, unbroken):
    kill_after_step_5(tmp_path / "other")
    checkpoint = tmp_path / "other" / "checkpoints" / "step_00000002"
    assert run(config(tmp_path / "run"), str(checkpoint))[0] == 0
    assert steps_of(tmp_path / "run") == [3, 4, 5, 6]
    assert lines(tmp_path / "run") == lines(unbroken)[2:]


FIXED = {
    "seed": {"seed": 4},
    "init": {"init": {**INIT, "hidden_size": 16}},
    "task.options": {"task": {"name": "arithmetic", "options": {"max_operand": 5, "test_fraction": 0.2}}},
    "training.batch_size": {"training": {**settings("")["training"], "batch_size": 4}},
}


@pytest.mark.parametrize("key", FIXED)
def test_what_would_make_it_another_run_is_refused_with_both_values(finished, key):
    before, changes = contents(finished), {"training": {**settings("")["training"], "max_steps": 9}} | FIXED[key]
    changed = SftConfig.model_validate({**settings(finished), **changes})
    checkpoint = saved(finished).path
    name, *rest = key.split(".")
    was, now = settings("").get(name, 0), changes[name]
    for part in rest:
        was, now = was[part], now[part]
    with pytest.raises(ConfigError) as refusal:
        run(changed, str(checkpoint))
    assert f"{key} was {was!r} and is now {now!r}" in str(refusal.value)
    assert contents(finished) == before


def test_other_demonstrations_are_refused(tmp_path):
    task = {"name": "arithmetic", "options": {"max_operand": 8}}
    long = {**settings(tmp_path, skip_too_long=True, max_steps=1), "task": task}
    run_to_end(SftConfig.model_validate(long))
    short = {**long, "max_response_tokens": 2, "training": {**long["training"], "max_steps": 2}}
    with pytest.raises(ConfigError, match=r"there were 74 demonstrations and are now 48"):
        run(SftConfig.model_validate(short), "auto")


def test_fewer_steps_than_were_done_are_refused(tmp_path):
    kill_after_step_5(tmp_path)
    with pytest.raises(ConfigError, match=r"training.max_steps = 3, but the run has done 4 already"):
        run(config(tmp_path, max_steps=3), "auto")


def test_a_checkpoint_of_reinforcement_learning_is_none_of_fine_tuning(tmp_path):
    state = CheckpointState.of_new_run(PromptState.of(PromptOrder.of(9, 0), [0]))
    path = write_checkpoint(tmp_path, 0, lambda folder: Checkpoint(folder).write_state(state, "", {}))
    with pytest.raises(ConfigError, match=r"step_00000000 was saved by .* another kind of run(.|\n)*demonstrations is"):
        run(config(tmp_path / "run"), str(path))


def test_a_run_saves_itself_before_its_job_ends(tmp_path):
    steady = {"kind": "constant", "value": 0.001}
    long = settings(tmp_path, max_steps=10**6, learning_rate=steady)
    short = {**long, "launch": {"walltime_seconds": 4, "save_before_end": 2}}
    code, output = run(SftConfig.model_validate(short), "auto")
    assert code == SAVED_EXIT_CODE
    assert f"saved after step {saved(tmp_path).state().step} (the job is about to end)" in output


def test_a_job_in_which_nothing_could_be_done_is_an_error(tmp_path):
    """It would be requeued for ever."""
    short = {**settings(tmp_path), "launch": {"walltime_seconds": 4, "save_before_end": 4}}
    with pytest.raises(RuntimeError, match=r"the job is too short: it ends within launch.save_before_end = 4 s"):
        run(SftConfig.model_validate(short), "auto")
