import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tba_hpc import checkpoint_folder as module
from tba_hpc.accuracy import Accuracy
from tba_hpc.checkpoint import Checkpoint, CheckpointState, PromptState, newest_checkpoint, verify_checkpoint
from tba_hpc.checkpoint_folder import (
    CheckpointError,
    adopt_checkpoint,
    clear_leftovers,
    list_checkpoints,
    remove_old,
    set_aside_newer,
    write_checkpoint,
)
from tba_hpc.config import CheckpointConfig
from tba_hpc.prompts import PromptOrder

PROMPTS = PromptState.of(PromptOrder.of(100, 3), [4, 8])
STATE = CheckpointState(
    step=7,
    reference_version=0,
    prompts=PROMPTS,
    received=72,
    duplicates=3,
    train_seconds=1.5,
    total_seconds=2.5,
    save_seconds=0.25,
    accuracy_before=Accuracy(3, 8),
)
TENSORS = {"weights/a": torch.arange(6.0).reshape(2, 3), "step/a": torch.tensor(7.0)}


def fill(folder: Path) -> None:
    checkpoint = Checkpoint(folder)
    checkpoint.write_state(STATE, "seed: 3\n", TENSORS)
    for name in ("policy/model.safetensors", "replay/index.h5", "replay/segment-00000003.h5", "replay/ram-00000000.h5"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"content of " + name.encode())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_gives_back_what_was_saved(tmp_path):
    path = write_checkpoint(tmp_path / "checkpoints", 7, fill)
    assert path.name == "step_00000007"
    checkpoint = verify_checkpoint(path)
    assert checkpoint.state() == STATE
    assert checkpoint.config.read_text() == "seed: 3\n"
    loaded = checkpoint.tensors()
    assert loaded.keys() == TENSORS.keys()
    assert all(torch.equal(loaded[name], TENSORS[name]) for name in TENSORS)


def test_the_order_of_the_prompts_survives():
    order = PromptOrder(9, 5, np.array([3, 1]), epoch=4, division=2)
    state = PromptState.model_validate_json(PromptState.of(order, np.array([1, 2]).tolist()).model_dump_json())
    again = state.order(5)
    assert again.share(0, 2).take(30) == order.share(0, 2).take(30)
    assert (again.division, state.taken) == (2, (1, 2))


def test_a_step_saved_again_counts_as_newer(tmp_path):
    paths = [write_checkpoint(tmp_path, 7, fill) for _ in range(11)]
    write_checkpoint(tmp_path, 6, fill)
    assert list_checkpoints(tmp_path)[:11] == paths[::-1]
    assert newest_checkpoint(tmp_path).path == paths[-1]


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_save_that_fails_leaves_nothing_behind(tmp_path, after):
    write_checkpoint(tmp_path, 5, fill)

    def fail(folder):
        for number in range(after):
            (folder / str(number)).write_text("some")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_checkpoint(tmp_path, 7, fail)
    assert names(tmp_path) == ["step_00000005"]


class Crash(BaseException):
    """The process is gone: nothing is cleaned up after it."""


@pytest.mark.parametrize("call", range(1, 14))
def test_a_crash_at_any_moment_of_a_save_costs_at_most_that_save(tmp_path, monkeypatch, call):
    """Dies at the n-th of the calls that have something reach the disk, and nothing after it does."""
    write_checkpoint(tmp_path, 5, fill)
    calls = []

    def count(function):
        def counted(*args, **kwargs):
            calls.append(function)
            if len(calls) == call:
                raise Crash
            return function(*args, **kwargs)

        return counted

    monkeypatch.setattr(module, "sync", count(module.sync))
    monkeypatch.setattr(Path, "rename", count(Path.rename))
    monkeypatch.setattr(module.shutil, "rmtree", lambda *_, **__: None)
    crashed = False
    try:
        write_checkpoint(tmp_path, 7, fill)
    except Crash:
        crashed = True
    monkeypatch.undo()
    renamed = Path.rename in calls[: call - 1]
    clear_leftovers(tmp_path)
    assert crashed
    assert newest_checkpoint(tmp_path).state() == STATE
    assert names(tmp_path) == ["step_00000005", "step_00000007"][: 1 + renamed]


FILES = (
    "state.json",
    "config.yaml",
    "training_state.safetensors",
    "policy/model.safetensors",
    "replay/index.h5",
    "replay/ram-00000000.h5",
    "manifest.json",
)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_any_byte_that_changed_is_noticed_and_the_checkpoint_before_is_used(tmp_path_factory, name, place, change):
    folder = tmp_path_factory.mktemp("damaged")
    older, newer = (write_checkpoint(folder, step, fill) for step in (5, 7))
    content = bytearray((newer / name).read_bytes())
    position = int(place * len(content))
    content[position] ^= change
    (newer / name).write_bytes(content)
    if name == "manifest.json" and _same_manifest(older, newer):
        return
    assert newest_checkpoint(folder).path == older
    with pytest.raises(CheckpointError, match="step_00000007"):
        verify_checkpoint(newer)


def _same_manifest(older: Path, newer: Path) -> bool:
    """Whether the change made no difference to what the manifest says, such as one to its white space."""
    try:
        return json.loads((older / "manifest.json").read_text()) == json.loads((newer / "manifest.json").read_text())
    except ValueError:
        return False


@pytest.mark.parametrize("name", [*FILES, "replay/segment-00000003.h5"])
@pytest.mark.parametrize("what", ["missing", "shorter", "longer"])
def test_a_file_that_is_missing_or_of_another_size_is_named(tmp_path, name, what, caplog):
    older, newer = (write_checkpoint(tmp_path, step, fill) for step in (5, 7))
    content = (newer / name).read_bytes()
    (newer / name).unlink()
    if what != "missing":
        (newer / name).write_bytes(content[:-3] if what == "shorter" else content + b"x")
    assert newest_checkpoint(tmp_path).path == older
    assert name.split("/")[-1] in caplog.text
    assert "it is passed over" in caplog.text


def test_none_at_all_is_something_else_than_none_that_can_be_used(tmp_path):
    assert newest_checkpoint(tmp_path / "missing") is None
    assert newest_checkpoint(tmp_path) is None
    for step in (5, 6):
        (write_checkpoint(tmp_path, step, fill) / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"none of the checkpoints(.|\n)*00006/state.json(.|\n)*00005/state.json"):
        newest_checkpoint(tmp_path)


def test_another_runs_checkpoint_is_taken_over_as_it_is(tmp_path):
    original = verify_checkpoint(write_checkpoint(tmp_path / "one", 7, fill))
    path = adopt_checkpoint(tmp_path / "other", original)
    assert path == tmp_path / "other" / "step_00000007"
    adopted = verify_checkpoint(path)
    assert adopted.state() == STATE
    segment = "replay/segment-00000003.h5"
    assert (path / segment).stat().st_ino == (original.path / segment).stat().st_ino
    shutil.rmtree(original.path)
    assert verify_checkpoint(path).state() == STATE


@pytest.mark.parametrize("manifest", ["[]", "{}", '{"files": []}', '{"files": {}, "format": 99}', "1", '"a"', ""])
def test_what_is_no_manifest_is_refused(tmp_path, manifest):
    path = write_checkpoint(tmp_path, 5, fill)
    (path / "manifest.json").write_text(manifest)
    with pytest.raises(CheckpointError, match="step_00000005"):
        verify_checkpoint(path)


def test_a_state_of_another_version_is_refused(tmp_path):
    def fill_other(folder):
        fill(folder)
        (folder / "state.json").write_text('{"stride": 7}')

    path = write_checkpoint(tmp_path, 5, fill_other)
    with pytest.raises(CheckpointError, match=r"another version(.|\n)*step is missing"):
        verify_checkpoint(path)


def test_only_the_newest_are_kept_and_the_pinned_ones(tmp_path):
    for step in (10, 20, 30, 40, 50, 60):
        write_checkpoint(tmp_path, step, fill)
    (tmp_path / "step_00000010" / "pinned").touch()
    remove_old(tmp_path, CheckpointConfig(keep_last=2, pin_every=30))
    assert names(tmp_path) == ["step_00000010", "step_00000030", "step_00000050", "step_00000060"]
    assert verify_checkpoint(tmp_path / "step_00000010").state() == STATE


def test_half_a_removal_is_no_checkpoint(tmp_path, monkeypatch):
    for step in (10, 20):
        write_checkpoint(tmp_path, step, fill)

    def crash(*_):
        raise Crash

    monkeypatch.setattr(shutil, "rmtree", crash)
    with pytest.raises(Crash):
        remove_old(tmp_path, CheckpointConfig(keep_last=1))
    monkeypatch.undo()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step_00000020"]
    clear_leftovers(tmp_path)
    assert names(tmp_path) == ["step_00000020"]


def test_newer_checkpoints_than_the_chosen_one_are_set_aside(tmp_path):
    paths = [write_checkpoint(tmp_path, step, fill) for step in (10, 20, 20, 30)]
    aside = []
    for number in ("", "2"):
        set_aside_newer(tmp_path, paths[1])
        assert list_checkpoints(tmp_path) == [paths[1], paths[0]]
        aside += [f"step_00000020.2.set-aside{number}", f"step_00000030.set-aside{number}"]
        assert [name for name in names(tmp_path) if "aside" in name] == sorted(aside)
        assert write_checkpoint(tmp_path, 20, fill) == paths[2]
        write_checkpoint(tmp_path, 30, fill)


def test_files_are_on_stable_storage_before_the_folder_gets_its_name(tmp_path, monkeypatch):
    events = []
    sync, rename = os.fsync, Path.rename

    def noted_sync(fd):
        events.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "rename", lambda *args: (events.append("rename"), rename(*args)))
    write_checkpoint(tmp_path, 7, fill)
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    folder = str(tmp_path / "step_00000007.tmp")
    assert {f"{folder}/{name}" for name in (*FILES, "replay/segment-00000003.h5")} < set(before)
    assert {folder, f"{folder}/policy", f"{folder}/replay"} < set(before)
    assert before.index(f"{folder}/manifest.json") > before.index(f"{folder}/state.json")
    assert after == [str(tmp_path)]


def test_a_disk_that_is_full_is_an_error_of_the_file_system(tmp_path):
    """In a process of its own, whose files may not grow beyond a few kilobytes."""
    program = """
import resource, signal, sys, torch
from pathlib import Path
from tba_hpc.checkpoint import Checkpoint, CheckpointState
state = CheckpointState.model_validate_json(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, 2**14))
try:
    Checkpoint(Path(sys.argv[1])).write_state(state, "", {"weights/a": torch.zeros(10**5)})
except OSError as error:
    print("OSError", error)
"""
    words = [sys.executable, "-c", program, str(tmp_path), STATE.model_dump_json()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("OSError"), done.stderr
    assert "training_state.safetensors cannot be written" in done.stdout
