"""Saving beside training, with an engine and a buffer that are a few lines each."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny import tiny_settings

from tba_hpc.checkpoint import CheckpointState, PromptState, verify_checkpoint
from tba_hpc.checkpoint_folder import list_checkpoints
from tba_hpc.checkpointer import Checkpointer
from tba_hpc.config import RunConfig
from tba_hpc.prompts import PromptOrder
from tba_hpc.run_snapshot import RunSnapshots
from tba_hpc.settings import validate


class Engine:
    def __init__(self) -> None:
        self.weight = torch.zeros(3)

    def state(self):
        return {"weights/a": self.weight}

    def save_pretrained(self, path: Path, tokenizer, state) -> None:
        path.mkdir()
        (path / "model").write_text(str(state["weights/a"].tolist()))


class Buffer:
    """Writes when `may_write` is set; what went on is in `events`."""

    def __init__(self) -> None:
        self.may_write = threading.Event()
        self.may_write.set()
        self.events: list[str] = []
        self.error: Exception | None = None

    def snapshot(self):
        self.events.append("snapshot")
        return SimpleNamespace(write=self.write, release=lambda: self.events.append("release"))

    def write(self, folder: Path) -> None:
        assert self.may_write.wait(30)
        if self.error:
            raise self.error
        folder.mkdir()
        (folder / "index.h5").touch()
        self.events.append("written")


@pytest.fixture
def make(tmp_path):
    def make(first_step=0, is_superseded=lambda: False, reference=None, **checkpoint):
        settings = tiny_settings("model", tmp_path) | {"checkpoint": {"every_steps": 3} | checkpoint}
        config = validate(RunConfig, settings, "")
        engine, buffer = Engine(), Buffer()
        new = CheckpointState.of_new_run(PromptState.of(PromptOrder.of(9, 0), [0]))
        version = lambda: reference.version if reference else 0  # noqa: E731
        describe = lambda step: new.model_copy(update={"step": step, "reference_version": version()})  # noqa: E731
        take = RunSnapshots(config, engine, None, buffer, describe, reference).take
        subject = Checkpointer(config.checkpoint, tmp_path, take, first_step, 2.5, is_superseded)
        return subject, engine, buffer

    return make


def steps(folder: Path) -> list[int]:
    return sorted(verify_checkpoint(path).state().step for path in list_checkpoints(folder))


def finish(subject: Checkpointer, folder: Path, n: int) -> None:
    """Waits until there are so many checkpoints, as training would: step by step."""
    deadline = threading.Event()
    for _ in range(1000):
        if len(list_checkpoints(folder)) == n and not subject.saving:
            return
        subject.step_done(0)
        deadline.wait(0.01)
    pytest.fail(f"{n} checkpoints did not come about")


def test_a_save_begins_at_each_multiple_of_the_steps_between_two(make, tmp_path):
    subject, _, buffer = make(keep_last=9)
    for step in range(1, 8):
        subject.step_done(step)
        finish(subject, tmp_path, step // 3)
    assert steps(tmp_path) == [3, 6]
    assert buffer.events == ["snapshot", "written", "release"] * 2
    assert subject.metrics["checkpoint/save_seconds"] >= subject.metrics["checkpoint/copy_seconds"] > 0


def test_where_steps_are_skipped_a_save_follows_as_soon_as_it_may(make, tmp_path):
    """As in synchronous mode, where a run may be saved after every k-th step only."""
    subject, _, _ = make(first_step=2, keep_last=9)
    for step, saved in ((4, 1), (6, 2), (8, 2), (10, 3)):
        subject.step_done(step)
        finish(subject, tmp_path, saved)
    assert steps(tmp_path) == [4, 6, 10]


def test_what_is_saved_is_the_state_of_the_step_not_of_the_moment_of_writing(make, tmp_path):
    subject, engine, buffer = make()
    buffer.may_write.clear()
    engine.weight.fill_(3)
    subject.step_done(3)
    engine.weight.fill_(4)
    buffer.may_write.set()
    finish(subject, tmp_path, 1)
    (path,) = list_checkpoints(tmp_path)
    assert verify_checkpoint(path).tensors()["weights/a"].tolist() == [3, 3, 3]
    assert (path / "policy" / "model").read_text() == "[3.0, 3.0, 3.0]"


def test_training_goes_on_while_a_save_is_written_and_the_next_one_waits_for_it(make, tmp_path):
    subject, _, buffer = make(keep_last=9)
    buffer.may_write.clear()
    for step in range(1, 9):
        subject.step_done(step)
    assert buffer.events == ["snapshot"]
    assert steps(tmp_path) == []
    buffer.may_write.set()
    subject.save_last(9)
    assert steps(tmp_path) == [3, 9]
    assert buffer.events == ["snapshot", "written", "release"] * 2


def test_a_checkpoint_to_be_pinned_waits_for_the_save_before_it(make, tmp_path):
    subject, _, buffer = make(keep_last=9, pin_every=6)
    buffer.may_write.clear()
    subject.step_done(3)
    threading.Timer(0.2, buffer.may_write.set).start()
    subject.step_done(6)
    finish(subject, tmp_path, 2)
    assert steps(tmp_path) == [3, 6]


def test_the_time_that_the_last_save_takes_is_known_from_earlier_ones(make, tmp_path):
    subject, _, buffer = make()
    assert subject.save_seconds == 2.5
    buffer.may_write.clear()
    subject.step_done(3)
    assert subject.save_seconds == 5, "it would have to wait for the one under way"
    buffer.may_write.set()
    finish(subject, tmp_path, 1)
    assert 0 < subject.save_seconds < 2.5
    subject.save_last(4)
    newest, _ = list_checkpoints(tmp_path)
    assert 0 < verify_checkpoint(newest).state().save_seconds < 2.5


def test_a_failed_save_is_logged_and_the_next_may_succeed(make, tmp_path, caplog):
    subject, _, buffer = make()
    buffer.error = OSError(28, "No space left on device")
    subject.step_done(3)
    for _ in range(1000):
        subject.step_done(4)
        if not subject.saving:
            break
        threading.Event().wait(0.01)
    assert "No space left on device" in caplog.text
    assert buffer.events == ["snapshot", "release"]
    assert list(tmp_path.iterdir()) == []
    buffer.error = None
    subject.step_done(6)
    finish(subject, tmp_path, 1)
    assert steps(tmp_path) == [6]


def test_what_is_no_failure_of_the_file_system_is_raised(make):
    subject, _, buffer = make()
    buffer.error = KeyError("a bug")
    with pytest.raises(KeyError, match="a bug"):
        subject.save_last(3)
    assert buffer.events == ["snapshot", "release"]


def test_the_last_save_must_succeed(make):
    subject, _, buffer = make()
    buffer.error = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        subject.save_last(2)
    assert buffer.events == ["snapshot", "release"]


def test_the_last_save_has_a_bound(make):
    subject, _, buffer = make(timeout_seconds=0.1)
    buffer.may_write.clear()
    with pytest.raises(TimeoutError, match=r"writing a checkpoint to .* took more than 0 s"):
        subject.save_last(2)
    buffer.may_write.set()


def test_without_periodic_saves_there_is_the_last_one(make, tmp_path):
    subject, _, _ = make(every_steps=None)
    for step in range(1, 10):
        subject.step_done(step)
    subject.save_last(10)
    assert steps(tmp_path) == [10]


def test_an_attempt_that_another_has_taken_over_from_writes_no_more(make, tmp_path):
    superseded = []
    subject, _, buffer = make(is_superseded=lambda: bool(superseded))
    subject.save_last(3)
    superseded.append(True)
    with pytest.raises(RuntimeError, match="a later attempt of this run writes to"):
        subject.step_done(6)
    assert steps(tmp_path) == [3]
    assert buffer.events == ["snapshot", "written", "release"]


def test_nor_does_it_complete_the_one_it_is_writing(make, tmp_path):
    superseded = []
    subject, _, buffer = make(is_superseded=lambda: bool(superseded))
    buffer.may_write.clear()
    subject.step_done(3)
    superseded.append(True)
    buffer.may_write.set()
    with pytest.raises(RuntimeError, match="a later attempt of this run writes to"):
        subject.save_last(4)
    assert list(tmp_path.iterdir()) == []


def test_old_checkpoints_go(make, tmp_path):
    subject, _, _ = make(keep_last=1, pin_every=6)
    for step in (3, 6, 9, 12, 15):
        subject.save_last(step)
    assert steps(tmp_path) == [6, 12, 15]


class Reference:
    """Writes its weights into a file."""

    version = 3

    def __init__(self) -> None:
        self.weight = torch.ones(2)

    def copied_state(self):
        return {"a": self.weight.clone()}

    def save_pretrained(self, path: Path, state) -> None:
        path.mkdir()
        (path / "model").write_text(str(state["a"].tolist()))


def test_a_reference_that_has_moved_is_saved_as_it_was(make, tmp_path):
    reference = Reference()
    subject, _, buffer = make(reference=reference)
    buffer.may_write.clear()
    subject.step_done(3)
    reference.weight.add_(1)
    reference.version = 6
    buffer.may_write.set()
    finish(subject, tmp_path, 1)
    (path,) = list_checkpoints(tmp_path)
    checkpoint = verify_checkpoint(path)
    assert checkpoint.state().reference_version == 3
    assert (checkpoint.reference / "model").read_text() == "[1.0, 1.0]"


def test_one_that_has_not_is_where_the_run_began_with_it(make, tmp_path):
    reference = Reference()
    reference.version = 0
    make(reference=reference)[0].save_last(3)
    (path,) = list_checkpoints(tmp_path)
    assert verify_checkpoint(path).state().reference_version == 0
    assert not verify_checkpoint(path).reference.exists()
