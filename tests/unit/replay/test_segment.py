"""Segment files: what is written is read, by h5py too, and nothing else passes for it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_cases import Item, assert_same, make_batch

from tba_hpc.replay.segment import SegmentDirectory, SegmentError, SegmentReader, verify_segment, write_segment
from tba_hpc.trajectory import TrajectoryBatch

N = 120


@pytest.fixture(scope="module")
def batch() -> TrajectoryBatch:
    return make_batch(Item(i, tuple(range(i % 7)), i, i / 4) for i in range(N))


@pytest.fixture(scope="module")
def segment(batch: TrajectoryBatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("segments") / "segment.h5"
    assert write_segment(path, batch) == path.stat().st_size
    return path


@given(indices=st.lists(st.integers(0, N - 1), min_size=1, max_size=60))
def test_any_selection_reads_as_from_memory(segment, batch, indices):
    reader = SegmentReader(segment, verify_segment(segment))
    assert_same(reader.select(np.array(indices)), batch.select(np.array(indices)))
    reader.close()


def test_h5py_reads_it_as_it_is(segment, batch):
    with h5py.File(segment) as file:
        for name in file:
            np.testing.assert_array_equal(file[name][:], getattr(batch, name))
        assert set(file) == {*TrajectoryBatch.__dataclass_fields__, "prompt_offsets", "response_offsets"}


def test_responses_without_tokens_make_a_segment(tmp_path):
    batch = make_batch([Item(1, (), 0), Item(2, (), 1)])
    write_segment(tmp_path / "s.h5", batch)
    reader = SegmentReader(tmp_path / "s.h5", verify_segment(tmp_path / "s.h5"))
    assert_same(reader.select(np.arange(2)), batch)
    reader.close()


@settings(deadline=None)
@given(data=st.data())
def test_any_damage_is_found(segment, data):
    content = bytearray(segment.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    how = data.draw(st.sampled_from(["flip", "truncate", "extend"]))
    if how == "flip":
        content[position] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "truncate":
        del content[position:]
    else:
        content += b"\0"
    damaged = segment.with_name("damaged.h5")
    damaged.write_bytes(content)
    with pytest.raises(SegmentError, match=r"damaged\.h5 fails its checksum"):
        verify_segment(damaged)


def test_a_file_shortened_after_it_was_verified_is_found(segment, tmp_path):
    path = tmp_path / "s.h5"
    path.write_bytes(segment.read_bytes())
    reader = SegmentReader(path, verify_segment(path))
    path.write_bytes(segment.read_bytes()[:2000])
    with pytest.raises(SegmentError, match="ends before"):
        reader.select(np.arange(N))
    reader.close()


def test_a_missing_file_is_a_segment_error(tmp_path):
    with pytest.raises(SegmentError, match=r"none\.h5 cannot be read"):
        verify_segment(tmp_path / "none.h5")


def test_a_failed_write_leaves_nothing(tmp_path, batch):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_segment(tmp_path / "taken", batch)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_what_a_crash_left_of_a_write_is_removed(tmp_path):
    (tmp_path / "segment-00000003.h5.tmp").write_bytes(b"half a segm")
    (tmp_path / "notes.txt").write_text("not ours")
    SegmentDirectory(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["segment-00000000.h5", "segment-00000000.h5.bad"])
def test_segments_of_an_earlier_run_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=f"{tmp_path} holds 1 replay segments of an earlier run"):
        SegmentDirectory(tmp_path)


def test_few_files_are_open_at_a_time(tmp_path, batch):
    open_files = Path("/proc/self/fd")
    if not open_files.exists():
        pytest.skip("needs /proc")
    directory = SegmentDirectory(tmp_path, max_open=3)
    segments = [directory.write(batch.select(np.array([i]))) for i in range(8)]
    before = len(list(open_files.iterdir()))
    for i in [*range(8), 2, 0, 5]:
        assert_same(directory.select(segments[i], np.array([0])), batch.select(np.array([i])))
        assert len(list(open_files.iterdir())) <= before + 3
    # An open file that was deleted would go on taking room on the disk.
    directory.remove(segments[5])
    directory.set_aside(segments[0])
    assert len(list(open_files.iterdir())) == before + 1
    directory.close()
    assert len(list(open_files.iterdir())) == before


def test_a_segment_set_aside_keeps_its_bytes_under_another_name(tmp_path, batch):
    directory = SegmentDirectory(tmp_path)
    kept, bad = directory.write(batch), directory.write(batch)
    content = bad.path.read_bytes()
    directory.set_aside(bad)
    assert sorted(path.name for path in tmp_path.iterdir()) == [kept.path.name, bad.path.name + ".bad"]
    assert bad.path.with_name(bad.path.name + ".bad").read_bytes() == content
    directory.remove(kept)
    assert not kept.path.exists()


def test_files_held_stay_until_the_release(tmp_path, batch):
    directory = SegmentDirectory(tmp_path)
    removed, bad, bad_and_removed, kept = held = [directory.write(batch) for _ in range(4)]
    directory.hold(held)
    later = directory.write(batch)
    directory.remove(removed)
    directory.set_aside(bad)
    directory.set_aside(bad_and_removed)
    directory.remove(bad_and_removed)
    directory.remove(later)
    assert sorted(tmp_path.iterdir()) == [segment.path for segment in held]
    directory.release()
    names = [kept.path.name, bad.path.name + ".bad", bad_and_removed.path.name + ".bad"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    directory.remove(kept)
    assert not kept.path.exists()


def test_one_holds_at_a_time(tmp_path, batch):
    directory = SegmentDirectory(tmp_path)
    directory.hold([])
    with pytest.raises(AssertionError):
        directory.hold([directory.write(batch)])
    directory.release()
    directory.hold([])


def test_an_adopted_segment_keeps_its_number_and_later_ones_follow(tmp_path, batch):
    theirs = SegmentDirectory(tmp_path / "theirs")
    segments = [theirs.write(batch.select(np.arange(i + 1))) for i in range(4)]
    ours = SegmentDirectory(tmp_path / "ours")
    adopted = [ours.adopt(tmp_path / "theirs", number) for number in (3, 1)]
    assert [(s.number, s.path.name, s.nbytes) for s in adopted] == [
        (s.number, s.path.name, s.nbytes) for s in (segments[3], segments[1])
    ]
    assert ours.write(batch).number == 4
    ours.remove(adopted[0])
    assert_same(theirs.select(segments[3], np.arange(4)), batch.select(np.arange(4)))
    assert_same(ours.select(adopted[1], np.arange(2)), batch.select(np.arange(2)))
    ours.close()
    theirs.close()
