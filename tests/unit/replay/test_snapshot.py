"""A snapshot is the buffer of the moment it was taken, whatever the buffer does before it is written; restored, it goes
on as that buffer did."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_cases import Item, assert_same, filled, items_of, make_batch, make_config, restored, write_snapshot

from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.replay.snapshot_index import INDEX_NAME
from tba_hpc.trajectory import SampledBatch, TrajectoryBatch

MIXED = {"most_on_policy": 0.5, "reward_softmax": 0.5}
LIMITS = [0, 600, 2000, 10**6]

responses = st.sampled_from([(), (1,), (2,), (1, 2), (3,) * 20, (4,) * 40])
items = st.tuples(st.integers(-1, 4), responses, st.sampled_from([0.0, 1.0, -2.5]))
additions = st.tuples(st.lists(items, max_size=14), st.booleans())
histories = st.lists(additions, max_size=8)


class Run:
    """A buffer and what it was asked for, in the order of asking."""

    def __init__(self, buffer: ReplayBuffer, serial: int = 0, arrival: int = 0) -> None:
        self.buffer, self.serial, self.arrival = buffer, serial, arrival
        self.seen: list[Any] = []

    def play(self, history: list[tuple[list[tuple[int, tuple[int, ...], float]], bool]]) -> None:
        for batch, next_arrival in history:
            self.arrival += next_arrival
            added = [Item(p, tokens, self.serial + i, reward) for i, (p, tokens, reward) in enumerate(batch)]
            self.serial += len(added)
            self.seen.append(self.buffer.add(make_batch(added), self.arrival))
            if len(self.buffer):
                self.seen.append(self.buffer.sample(4, 3, self.serial))
                self.seen.append(self.buffer.sample(3, 2, self.serial, recent_only=True))
            self.seen.append(self.buffer.contents())
            stats = self.buffer.stats()
            self.seen.append((len(self.buffer), stats.queries, stats.duplicates, stats.evicted, stats.lost))


def assert_saw_the_same(a: Run, b: Run) -> None:
    for left, right in zip(a.seen, b.seen, strict=True):
        if isinstance(left, SampledBatch):
            assert_same(left.trajectories, right.trajectories)
            np.testing.assert_array_equal(left.group_ids, right.group_ids)
            np.testing.assert_array_equal(left.recent, right.recent)
        elif isinstance(left, tuple) and isinstance(left[1], TrajectoryBatch):
            np.testing.assert_array_equal(left[0], right[0])
            assert_same(left[1], right[1])
        else:
            assert left == right


def owned_files(buffer: ReplayBuffer) -> set[Path]:
    return {block.content.path for block in buffer._store.disk.blocks}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(additions, min_size=3, max_size=8),
    histories,
    st.booleans(),
    st.sampled_from(LIMITS),
    st.sampled_from(LIMITS),
    st.sampled_from([300, 1500, 10**6]),
    st.sampled_from([300, 10**6]),
)
def test_a_restored_buffer_goes_on_as_the_original_did(
    before, after, deduplicate, memory_limit, new_memory_limit, segment_bytes, new_segment_bytes
):
    config = {**MIXED, "deduplicate": deduplicate, "max_per_query": 4, "capacity": 12}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        limits = {"memory_limit": memory_limit, "segment_bytes": segment_bytes}
        original = Run(ReplayBuffer(make_config(**config, **limits), folder / "original", seed=5))
        original.play(before)
        serial, arrival = original.serial, original.arrival
        at_the_moment = original.buffer.contents()
        snapshot = original.buffer.snapshot()
        original.seen.clear()
        original.play(after)
        snapshot.write(folder / "snapshot")
        snapshot.release()
        assert set((folder / "original").iterdir()) == owned_files(original.buffer)
        written = {path: path.read_bytes() for path in (folder / "snapshot").iterdir()}

        limits = {"memory_limit": new_memory_limit, "segment_bytes": new_segment_bytes}
        buffer = restored(folder / "snapshot", folder / "restored", **config, **limits)
        assert buffer.stats().ram_bytes <= new_memory_limit
        sequences, trajectories = buffer.contents()
        np.testing.assert_array_equal(sequences, at_the_moment[0])
        assert_same(trajectories, at_the_moment[1])
        again = Run(buffer, serial, arrival)
        again.play(after)
        assert_saw_the_same(original, again)
        assert set((folder / "restored").iterdir()) == owned_files(buffer)
        assert {path: path.read_bytes() for path in (folder / "snapshot").iterdir()} == written
        original.buffer.close()
        buffer.close()


def test_a_snapshot_of_a_restored_buffer_is_as_good(tmp_path):
    config = {**MIXED, "memory_limit": 2000, "segment_bytes": 600, "max_per_query": 6, "capacity": 60}
    history = [([(i % 7, (i, j), float(i)) for i in range(20)], True) for j in range(12)]
    unbroken = Run(ReplayBuffer(make_config(**config), tmp_path / "unbroken", seed=5))
    unbroken.play(history)
    run = Run(ReplayBuffer(make_config(**config), tmp_path / "0", seed=5))
    for i in range(4):
        run.play(history[3 * i : 3 * i + 3])
        snapshot = run.buffer.snapshot()
        snapshot.write(tmp_path / f"snapshot-{i}")
        snapshot.release()
        run.buffer = restored(tmp_path / f"snapshot-{i}", tmp_path / f"{i + 1}", **config)
    assert_saw_the_same(unbroken, run)
    assert unbroken.buffer.stats().on_disk > 0


def test_segments_are_linked_and_outlive_the_original(tmp_path):
    buffer = filled(tmp_path / "original")
    before = items_of(buffer.contents()[1])
    inodes = {path.name: path.stat().st_ino for path in owned_files(buffer)}
    snapshot = buffer.snapshot()
    snapshot.write(tmp_path / "snapshot")
    snapshot.release()
    assert {p.name: p.stat().st_ino for p in (tmp_path / "snapshot").glob("segment-*.h5")} == inodes
    copy = restored(tmp_path / "snapshot", tmp_path / "restored", memory_limit=6000)
    assert {p.name: p.stat().st_ino for p in (tmp_path / "restored").iterdir()} == inodes
    for owner in (buffer, copy):
        owner.add(make_batch(Item(j % 5, (j,) * 20, j) for j in range(1000, 1200)), arrival=99)
        owner.add(make_batch(Item(6, (j,) * 20, j) for j in range(1200, 1400)), arrival=100)
        assert not owned_files(owner) & {tmp_path / name for name in inodes}
    again = restored(tmp_path / "snapshot", tmp_path / "again", memory_limit=6000)
    assert items_of(again.contents()[1]) == before


def test_without_hard_links_segments_are_copied(tmp_path, monkeypatch):
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    buffer = filled(tmp_path / "original")
    snapshot = buffer.snapshot()
    snapshot.write(tmp_path / "snapshot")
    snapshot.release()
    copy = restored(tmp_path / "snapshot", tmp_path / "restored")
    assert {path.stat().st_nlink for path in tmp_path.glob("*/segment-*.h5")} == {1}
    assert items_of(copy.contents()[1]) == items_of(buffer.contents()[1])


def test_written_by_another_thread_while_the_buffer_goes_on(tmp_path):
    buffer = filled(tmp_path / "original")
    before = items_of(buffer.contents()[1])
    for i in range(3):
        snapshot = buffer.snapshot()
        writer = threading.Thread(target=snapshot.write, args=(tmp_path / f"snapshot-{i}",))
        writer.start()
        for j in range(20):
            serial = 1000 + 100 * i + j
            buffer.add(make_batch(Item(p, (serial,) * 30, serial) for p in range(5)), arrival=serial)
            buffer.sample(3, 2, step=j)
        writer.join()
        snapshot.release()
        copy = restored(tmp_path / f"snapshot-{i}", tmp_path / f"restored-{i}", memory_limit=4000)
        assert items_of(copy.contents()[1]) == before
        before = items_of(buffer.contents()[1])


def test_ram_is_written_in_files_of_about_a_segment(tmp_path):
    write_snapshot(filled(tmp_path / "original", memory_limit=10**6, segment_bytes=5000), tmp_path / "snapshot")
    copy = restored(tmp_path / "snapshot", tmp_path / "restored")
    files = sorted(path.name for path in (tmp_path / "snapshot").iterdir())
    assert files == ["index.h5", *(f"ram-{i:08d}.h5" for i in range(len(files) - 1))]
    assert 3 <= len(files) - 1 <= copy.stats().ram_bytes // 5000 + 1


def test_a_buffer_that_never_held_anything(tmp_path):
    write_snapshot(ReplayBuffer(make_config(), tmp_path / "original", seed=5), tmp_path / "snapshot")
    copy = restored(tmp_path / "snapshot", tmp_path / "restored")
    copy.add(make_batch([Item(1, (1,), 0)]), arrival=-3)
    assert items_of(copy.contents()[1]) == [Item(1, (1,), 0)]


def test_the_books_are_kept(tmp_path):
    """Dead trajectories count as before, so segments are rewritten when they would have been."""
    limits = {"memory_limit": 6000, "segment_bytes": 1500}
    buffer = filled(tmp_path / "original")
    write_snapshot(buffer, tmp_path / "snapshot")
    copy = restored(tmp_path / "snapshot", tmp_path / "restored", **limits)
    kept, expected = copy._store.disk, buffer._store.disk
    for name in ("nbytes", "live_bytes", "live_rows"):
        assert [getattr(b, name) for b in kept.blocks] == [getattr(b, name) for b in expected.blocks]
    assert (kept.nbytes, kept.file_bytes) == (expected.nbytes, expected.file_bytes)
    assert copy.stats() == replace(buffer.stats(), ram_bytes=copy.stats().ram_bytes)


def test_more_queries_than_are_joined_at_once(tmp_path):
    buffer = ReplayBuffer(make_config(), tmp_path / "original", seed=5)
    buffer.add(make_batch(Item(i % 2500, (i,), i) for i in range(4000)), arrival=0)
    write_snapshot(buffer, tmp_path / "snapshot")
    copy = restored(tmp_path / "snapshot", tmp_path / "restored")
    assert_same(copy.contents()[1], buffer.contents()[1])
    assert_same(copy.sample(50, 2, step=0).trajectories, buffer.sample(50, 2, step=0).trajectories)


def test_an_arrival_that_began_with_nothing_is_one_of_its_own(tmp_path):
    buffer = ReplayBuffer(make_config(), tmp_path / "original", seed=5)
    buffer.add(make_batch([Item(1, (1,), 0)]), arrival=3)
    buffer.add(TrajectoryBatch.empty(), arrival=4)
    write_snapshot(buffer, tmp_path / "snapshot")
    copy = restored(tmp_path / "snapshot", tmp_path / "restored")
    with pytest.raises(ValueError, match="comes after arrival 4"):
        copy.add(make_batch([Item(1, (1,), 0)]), arrival=3)
    copy.add(make_batch([Item(2, (2,), 1)]), arrival=4)
    assert set(copy.sample(5, 1, step=0, recent_only=True).trajectories.rows["prompt_id"]) == {2}


def test_arrivals_do_not_go_back_after_a_restore(tmp_path):
    write_snapshot(filled(tmp_path / "original"), tmp_path / "snapshot")
    copy = restored(tmp_path / "snapshot", tmp_path / "restored")
    with pytest.raises(ValueError, match="arrival 3 comes after arrival 16"):
        copy.add(make_batch([Item(1, (1,), 0)]), arrival=3)


def test_lower_caps_apply_from_the_next_addition_on(tmp_path):
    buffer = filled(tmp_path / "original")
    write_snapshot(buffer, tmp_path / "snapshot")
    copy = restored(tmp_path / "snapshot", tmp_path / "restored", capacity=30, max_per_query=4)
    assert len(copy) == len(buffer) == 48
    report = copy.add(make_batch([Item(2, (7,), 100)]), arrival=20)
    held = items_of(copy.contents()[1])
    assert len(held) == 30
    assert [item.serial for item in held if item.prompt_id == 2] == [47, 7, 42, 100]
    assert report.evicted == 48 + 1 - 30


def test_a_filled_buffer_is_not_restored(tmp_path):
    buffer = filled(tmp_path / "original")
    write_snapshot(buffer, tmp_path / "snapshot")
    with pytest.raises(AssertionError):
        buffer.restore(tmp_path / "snapshot")


def test_one_snapshot_at_a_time_and_a_second_release_does_nothing(tmp_path):
    buffer = filled(tmp_path)
    first = buffer.snapshot()
    with pytest.raises(AssertionError):
        buffer.snapshot()
    first.release()
    second = buffer.snapshot()
    held = owned_files(buffer)
    first.release()
    buffer.add(make_batch(Item(j % 5, (j,) * 20, j) for j in range(1000, 1200)), arrival=99)
    assert held <= set(tmp_path.iterdir())
    second.release()
    assert set(tmp_path.iterdir()) == owned_files(buffer)


def test_a_segment_found_damaged_before_it_was_written_is_part_of_the_snapshot(tmp_path):
    """The bytes stay for someone to look into, and the copy finds the damage as the original did."""
    buffer = filled(tmp_path / "original")
    before = {item.serial for item in items_of(buffer.contents()[1])}
    buffer.close()
    damaged = min(owned_files(buffer))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    snapshot = buffer.snapshot()
    left = {item.serial for item in items_of(buffer.contents()[1])}
    snapshot.write(tmp_path / "snapshot")
    assert damaged.exists()
    snapshot.release()
    assert not damaged.exists()
    assert damaged.with_name(damaged.name + ".bad").exists()
    copy = restored(tmp_path / "snapshot", tmp_path / "restored", memory_limit=6000)
    assert len(copy) == len(before)
    assert {item.serial for item in items_of(copy.contents()[1])} == left
    assert copy.stats().lost == buffer.stats().lost == len(before) - len(left) > 0
    write_snapshot(buffer, tmp_path / "later")
    assert restored(tmp_path / "later", tmp_path / "restored later").stats().lost == buffer.stats().lost


def test_a_segment_that_is_gone_is_an_error_of_the_write(tmp_path):
    buffer = filled(tmp_path / "original")
    snapshot = buffer.snapshot()
    gone = min(owned_files(buffer))
    gone.unlink()
    with pytest.raises(FileNotFoundError, match=gone.name):
        snapshot.write(tmp_path / "snapshot")
    snapshot.release()
    assert not (tmp_path / "snapshot" / INDEX_NAME).exists()
