"""Snapshots of which something is missing or not as it was written."""

from __future__ import annotations

import tempfile
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_cases import filled, make_config, restored, write_snapshot

from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.replay.files import write_arrays
from tba_hpc.replay.restore import ReplayRestoreError
from tba_hpc.replay.segment import read_segment, write_segment
from tba_hpc.replay.snapshot_index import INDEX_NAME, SnapshotIndex


@pytest.mark.parametrize("kind", ["segment", "ram"])
@pytest.mark.parametrize("how", ["truncate", "delete"])
def test_an_incomplete_file_is_refused_by_name(tmp_path, kind, how):
    write_snapshot(filled(tmp_path / "original"), tmp_path / "snapshot")
    file = max((tmp_path / "snapshot").glob(f"{kind}-*.h5"))
    content = file.read_bytes()
    file.unlink()
    if how == "truncate":
        file.write_bytes(content[:-1])
    with pytest.raises(ReplayRestoreError, match=str(file)):
        restored(tmp_path / "snapshot", tmp_path / "restored")


def test_a_damaged_segment_is_found_when_it_is_read(tmp_path):
    write_snapshot(filled(tmp_path / "original"), tmp_path / "snapshot")
    file = min((tmp_path / "snapshot").glob("segment-*.h5"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    copy = restored(tmp_path / "snapshot", tmp_path / "restored")
    assert copy.stats().lost == 0
    assert len(copy.contents()[0]) == 48 - copy.stats().lost < 48


def test_ram_of_another_length_is_refused(tmp_path):
    write_snapshot(filled(tmp_path / "original"), tmp_path / "snapshot")
    file = max((tmp_path / "snapshot").glob("ram-*.h5"))
    content = read_segment(file)
    write_segment(file, content.select(np.arange(len(content) - 1)))
    with pytest.raises(ReplayRestoreError, match=f"{file} holds {len(content) - 1} trajectories instead of"):
        restored(tmp_path / "snapshot", tmp_path / "restored")


def test_a_folder_without_an_index_is_refused(tmp_path):
    with pytest.raises(ReplayRestoreError, match=INDEX_NAME):
        restored(tmp_path / "nowhere", tmp_path / "restored")


@settings(deadline=None)
@given(st.data())
def test_any_damage_to_the_index_is_found(saved, data):
    content = bytearray((saved / INDEX_NAME).read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[position] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[position:]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / INDEX_NAME).write_bytes(content)
        with pytest.raises(ReplayRestoreError, match=rf"{folder}/index\.h5 .*checksum"):
            ReplayBuffer(make_config(), Path(folder) / "buffer", seed=5).restore(Path(folder))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    write_snapshot(filled(folder / "original"), folder / "snapshot")
    return folder / "snapshot"


def last_twice(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array[:-1], array[-2:-1]])


def swapped(array: np.ndarray) -> np.ndarray:
    return array[np.r_[1, 0, 2 : len(array)]]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("queries", lambda a: a.astype(np.float64), "queries is float64"),
        ("queries", lambda a: a.reshape(1, -1), "queries is int64"),
        ("counters", lambda a: a[:0], "0 sets of counters"),
        ("counters", lambda a: np.zeros_like(a), "sequence numbers of stored trajectories are out of order"),
        ("queries", lambda a: a[:-1], "4 queries and 5 sizes"),
        ("queries", last_twice, "queries come twice"),
        ("segments", last_twice, "segments come twice"),
        ("query_sizes", lambda a: a + 1, "queries of 53 trajectories"),
        ("entries", lambda a: a[:-1], "queries of 48 trajectories"),
        ("entries", swapped, "of a query are out of order"),
        ("entries", last_twice, "not those that are stored"),
        ("segment_sizes", lambda a: a[:-1], "segments of"),
        ("segment_sizes", lambda a: 0 * a, "not those that are stored"),
        ("segment_sequences", swapped, "sequence numbers of stored trajectories are out of order"),
        ("segment_sequences", lambda a: a[1:], "segments of"),
        ("ram_rows", lambda a: a - a, "files of what was in RAM of 0"),
        ("ram_sequences", swapped, "sequence numbers of stored trajectories are out of order"),
    ],
)
def test_an_index_that_contradicts_itself_is_refused(saved, tmp_path, name, change, message):
    index = SnapshotIndex.read(saved / INDEX_NAME)
    arrays = {field.name: getattr(index, field.name) for field in fields(index)}
    write_arrays(tmp_path / INDEX_NAME, {**arrays, name: change(arrays[name])})
    with pytest.raises(ReplayRestoreError, match=message):
        restored(tmp_path, tmp_path / "restored")


def test_an_index_of_another_format_is_refused(saved, tmp_path):
    (tmp_path / INDEX_NAME).write_bytes(min(saved.glob("ram-*.h5")).read_bytes())
    with pytest.raises(ReplayRestoreError, match="counters"):
        restored(tmp_path, tmp_path / "restored")
