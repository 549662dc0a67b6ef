"""The buffer against a plain model of it, and the same buffer with its trajectories on disk against itself in RAM."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_cases import Item, assert_same, contents, items_of, make_batch, make_config

from tba_hpc.replay.buffer import ReplayBuffer, response_hashes
from tba_hpc.trajectory import SampledBatch, TrajectoryBatch

MAX_PER_QUERY, CAPACITY = 4, 12


class Model:
    """What the buffer should hold, as one list of items in the order of their arrival."""

    def __init__(self, deduplicate: bool) -> None:
        self.deduplicate = deduplicate
        self.held: list[tuple[int, Item]] = []
        self.duplicates = self.evicted = 0

    def add(self, items: list[Item], arrival: int) -> None:
        for item in items:
            same = [old for old in self.held if self.deduplicate and old[1][:2] == item[:2]]
            self.duplicates += len(same)
            self.held = [old for old in self.held if old not in same] + [(arrival, item)]
        for prompt_id in {item.prompt_id for item in items}:
            of_query = [old for old in self.held if old[1].prompt_id == prompt_id]
            self._evict(of_query[: max(len(of_query) - MAX_PER_QUERY, 0)])
        self._evict(self.held[: max(len(self.held) - CAPACITY, 0)])

    def _evict(self, surplus: list[tuple[int, Item]]) -> None:
        self.evicted += len(surplus)
        self.held = [old for old in self.held if old not in surplus]

    def contents(self) -> dict[int, list[Item]]:
        result: dict[int, list[Item]] = {}
        for _, item in self.held:
            result.setdefault(item.prompt_id, []).append(item)
        return result

    def recent(self) -> set[Item]:
        latest = max((arrival for arrival, _ in self.held), default=None)
        return {item for arrival, item in self.held if arrival == latest}


def same_samples(a: SampledBatch, b: SampledBatch) -> None:
    assert_same(a.trajectories, b.trajectories)
    np.testing.assert_array_equal(a.group_ids, b.group_ids)
    np.testing.assert_array_equal(a.recent, b.recent)


responses = st.sampled_from([(), (1,), (2,), (1, 2), (3,) * 20, (4,) * 40])
batches = st.lists(st.tuples(st.integers(-1, 4), responses, st.sampled_from([0.0, 1.0, -2.5])), max_size=14)
histories = st.lists(st.tuples(batches, st.booleans()), min_size=1, max_size=8)


def replayed(history: list[tuple[list[tuple[int, tuple[int, ...], float]], bool]]) -> list[tuple[list[Item], int]]:
    """The history as batches of items with their arrival."""
    serial, arrival, result = 0, 0, []
    for batch, next_arrival in history:
        arrival += next_arrival
        items = [Item(p, tokens, serial + i, reward) for i, (p, tokens, reward) in enumerate(batch)]
        serial += len(items)
        result.append((items, arrival))
    return result


@settings(max_examples=30, deadline=None)
@given(histories, st.booleans(), st.sampled_from([0, 600, 2000]), st.sampled_from([300, 1500, 10**6]))
def test_holds_what_the_model_holds(history, deduplicate, memory_limit, segment_bytes):
    model = Model(deduplicate)
    with tempfile.TemporaryDirectory() as folder:
        limits = {"memory_limit": memory_limit, "segment_bytes": segment_bytes}
        caps = {"max_per_query": MAX_PER_QUERY, "capacity": CAPACITY}
        buffer = ReplayBuffer(make_config(deduplicate=deduplicate, **caps, **limits), Path(folder), seed=0)
        for items, arrival in replayed(history):
            before = {item for _, item in model.held}
            duplicates, evicted = model.duplicates, model.evicted
            report = buffer.add(make_batch(items), arrival)
            model.add(items, arrival)
            assert report.duplicates == model.duplicates - duplicates
            assert report.evicted == model.evicted - evicted
            assert report.added == len({item for _, item in model.held} - before)
            assert len(buffer) == len(model.held)
            assert contents(buffer, MAX_PER_QUERY) == model.contents()
            if model.held:
                recent = buffer.sample(len(model.contents()), MAX_PER_QUERY, step=1, recent_only=True)
                assert set(items_of(recent.trajectories)) == model.recent()
            stats = buffer.stats()
            assert stats.in_ram + stats.on_disk == len(buffer)
            assert stats.queries == len(model.contents())
            assert (stats.duplicates, stats.evicted, stats.lost) == (model.duplicates, model.evicted, 0)
            assert stats.ram_bytes <= memory_limit
            assert stats.disk_bytes == sum(path.stat().st_size for path in Path(folder).iterdir())
        buffer.close()


@settings(max_examples=20, deadline=None)
@given(histories, st.integers(0, 2**40), st.integers(0, 10**6))
def test_sampling_does_not_see_where_trajectories_are(history, seed, step):
    mixture = {"most_on_policy": 0.5, "reward_softmax": 0.5, "max_per_query": MAX_PER_QUERY, "capacity": CAPACITY}
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        in_ram = ReplayBuffer(make_config(**mixture), Path(a), seed)
        on_disk = ReplayBuffer(make_config(memory_limit=0, segment_bytes=400, **mixture), Path(b), seed)
        for items, arrival in replayed(history):
            assert in_ram.add(make_batch(items), arrival) == on_disk.add(make_batch(items), arrival)
            if len(in_ram):
                assert on_disk.stats().in_ram == in_ram.stats().on_disk == 0
                same_samples(in_ram.sample(5, 3, step), on_disk.sample(5, 3, step))
                same_samples(in_ram.sample(5, 3, step, recent_only=True), on_disk.sample(5, 3, step, recent_only=True))
        on_disk.close()


@settings(max_examples=20, deadline=None)
@given(histories)
def test_sampling_does_not_see_how_the_content_came_about(history):
    """Adding what is held, in the order of arrival, to another buffer gives the same batches: all that a resumed run
    has to keep."""
    mixture = {"most_on_policy": 0.5, "reward_softmax": 0.5, "max_per_query": MAX_PER_QUERY, "capacity": CAPACITY}
    model = Model(deduplicate=True)
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        buffer, copy = (ReplayBuffer(make_config(**mixture), Path(folder), seed=3) for folder in (a, b))
        for items, arrival in replayed(history):
            buffer.add(make_batch(items), arrival)
            model.add(items, arrival)
        for arrival, item in model.held:
            copy.add(make_batch([item]), arrival)
        assert len(copy) == len(buffer)
        if model.held:
            same_samples(buffer.sample(6, 3, step=9), copy.sample(6, 3, step=9))


def test_groups_hold_one_query_each_in_order(tmp_path):
    buffer = ReplayBuffer(make_config(most_on_policy=0.5), tmp_path, seed=0)
    buffer.add(make_batch(Item(i % 10, (i,), i) for i in range(60)), arrival=0)
    buffer.add(make_batch(Item(i % 9, (i,), i) for i in range(60, 105)), arrival=1)
    batch = buffer.sample(8, 5, step=0)
    np.testing.assert_array_equal(batch.group_ids, np.repeat(np.arange(8), 5))
    prompt_ids = batch.trajectories.rows["prompt_id"].reshape(8, 5)
    assert (prompt_ids == prompt_ids[:, :1]).all()
    assert len(set(prompt_ids[:, 0])) == 8
    serials = batch.trajectories.rows["policy_version"].reshape(8, 5)
    assert all(len(set(group)) == 5 for group in serials)
    assert (serials[batch.recent.reshape(8, 5)] >= 60).all()
    assert 0 < batch.recent.sum() < len(batch)


def test_another_step_and_another_seed_draw_differently(tmp_path):
    buffers = [ReplayBuffer(make_config(), tmp_path / str(seed), seed) for seed in (0, 1)]
    for buffer in buffers:
        buffer.add(make_batch(Item(i % 50, (i,), i) for i in range(500)), arrival=0)
    draws = [buffers[seed].sample(4, 4, step).trajectories.rows.tobytes() for seed, step in [(0, 0), (0, 1), (1, 0)]]
    assert len(set(draws)) == 3
    assert buffers[0].sample(4, 4, 1).trajectories.rows.tobytes() == draws[1]


def test_an_empty_sync_leaves_the_last_one_recent(tmp_path):
    buffer = ReplayBuffer(make_config(), tmp_path, seed=0)
    buffer.add(make_batch([Item(1, (1,), 0)]), arrival=0)
    buffer.add(make_batch([Item(2, (2,), 1)]), arrival=1)
    buffer.add(TrajectoryBatch.empty(), arrival=2)
    assert set(buffer.sample(3, 2, step=0, recent_only=True).trajectories.rows["prompt_id"]) == {2}


def test_the_buffer_keeps_no_reference_to_the_batch_added(tmp_path):
    buffer = ReplayBuffer(make_config(), tmp_path, seed=0)
    batch = make_batch([Item(1, (5, 6), 0)])
    buffer.add(batch, arrival=0)
    batch.response_tokens[:] = 99
    assert contents(buffer, 10) == {1: [Item(1, (5, 6), 0)]}


def test_mistakes_are_refused_and_change_nothing(tmp_path):
    buffer = ReplayBuffer(make_config(), tmp_path, seed=0)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1, 1, step=0)
    buffer.add(make_batch([Item(1, (1,), 0)]), arrival=3)
    with pytest.raises(ValueError, match="arrival 2 comes after arrival 3"):
        buffer.add(make_batch([Item(1, (2,), 1)]), arrival=2)
    with pytest.raises(ValueError, match="prompt 7 has reward NaN"):
        buffer.add(make_batch([Item(6, (2,), 1), Item(7, (2,), 1, float("nan"))]), arrival=4)
    with pytest.raises(ValueError, match="holds nothing"):
        buffer.sample(1, 0, step=0)
    assert len(buffer) == 1


def test_segments_of_an_earlier_run_are_refused(tmp_path):
    config = make_config(memory_limit=0)
    buffer = ReplayBuffer(config, tmp_path, seed=0)
    buffer.add(make_batch([Item(1, (1,), 0)]), arrival=0)
    buffer.close()
    with pytest.raises(ValueError, match=str(tmp_path)):
        ReplayBuffer(config, tmp_path, seed=0)


def flip_byte(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= 0xFF
    path.write_bytes(data)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_damaged_segment_costs_its_trajectories_only(data):
    """Found when it is first read, for a sample or to be rewritten, it is set aside, and the rest is as it was."""
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(max_per_query=6, memory_limit=0, segment_bytes=300)
        buffer = ReplayBuffer(config, Path(folder), seed=0)
        first = [Item(i % 5, (i,) * (i % 9), i) for i in range(20)]
        buffer.add(make_batch(first), arrival=0)
        segments = sorted(Path(folder).glob("*.h5"))
        assert len(segments) > 2
        damaged = data.draw(st.sampled_from(segments))
        how = data.draw(st.sampled_from(["flip", "truncate", "extend", "delete"]))
        if how == "flip":
            flip_byte(damaged, data.draw(st.integers(0, damaged.stat().st_size - 1)))
        elif how == "truncate":
            damaged.write_bytes(damaged.read_bytes()[: data.draw(st.integers(0, damaged.stat().st_size - 1))])
        elif how == "extend":
            damaged.write_bytes(damaged.read_bytes() + b"\0")
        else:
            damaged.unlink()
        second = [Item(i % 5, (i,), i) for i in range(20, 20 + data.draw(st.integers(0, 20)))]
        buffer.add(make_batch(second), arrival=1)
        held = contents(buffer, 6)
        stats = buffer.stats()
        assert len(buffer) == len(first) + len(second) - stats.evicted - stats.lost == sum(map(len, held.values()))
        assert {item for items in held.values() for item in items} <= {*first, *second}
        gone = [item for item in first + second if item not in held.get(item.prompt_id, [])]
        assert len(gone) == stats.evicted + stats.lost
        assert not damaged.exists()
        if stats.lost and how != "delete":
            assert damaged.with_name(damaged.name + ".bad").exists()
        if not second:
            assert stats.lost > 0
        buffer.close()


def test_losing_a_segment_is_logged(tmp_path, caplog):
    buffer = ReplayBuffer(make_config(memory_limit=0), tmp_path, seed=0)
    buffer.add(make_batch(Item(i, (i,), i) for i in range(3)), arrival=0)
    (segment,) = tmp_path.glob("*.h5")
    flip_byte(segment, -1)
    with caplog.at_level(logging.WARNING), pytest.raises(ValueError, match="empty"):
        buffer.sample(1, 1, step=0)
    assert f"{segment} fails its checksum; set aside, 3 trajectories lost" in caplog.text
    assert (buffer.stats().lost, buffer.stats().queries, len(buffer)) == (3, 0, 0)
    buffer.add(make_batch([Item(9, (9,), 9)]), arrival=1)
    assert contents(buffer, 5) == {9: [Item(9, (9,), 9)]}


def test_without_the_latest_arrival_sampling_goes_on(tmp_path):
    buffer = ReplayBuffer(make_config(memory_limit=0, segment_bytes=100), tmp_path, seed=0)
    buffer.add(make_batch([Item(1, (1,) * 20, 0)]), arrival=0)
    buffer.add(make_batch([Item(2, (2,) * 20, 1)]), arrival=1)
    flip_byte(max(tmp_path.glob("*.h5")), 700)
    batch = buffer.sample(2, 2, step=0, recent_only=True)
    assert set(batch.trajectories.rows["prompt_id"]) == {1}
    assert not batch.recent.any()


def test_disk_and_ram_stay_within_twice_what_is_alive(tmp_path):
    """Duplicates and the queries' shares drop trajectories here and there in all segments."""
    rng = np.random.default_rng(0)
    config = make_config(max_per_query=30, capacity=1500, memory_limit=200_000, segment_bytes=100_000)
    buffer = ReplayBuffer(config, tmp_path, seed=0)
    most_files = 0
    for arrival in range(60):
        lengths = rng.integers(1, 250, size=100)
        prompts = rng.zipf(1.3, size=100) % 200
        buffer.add(
            make_batch(
                Item(int(p), (int(rng.integers(3)),) * int(n), arrival) for p, n in zip(prompts, lengths, strict=True)
            ),
            arrival,
        )
        stats = buffer.stats()
        files = list(tmp_path.iterdir())
        most_files = max(most_files, len(files))
        live = sum(block.live_bytes for block in buffer._store.disk.blocks)
        assert stats.disk_bytes <= 2 * live + 6000 * len(files)
        assert stats.ram_bytes <= 2 * sum(block.live_bytes for block in buffer._store.ram.blocks)
        assert stats.ram_bytes <= 200_000
        assert len(files) <= 4 * live / 100_000 + 2
    assert most_files > 5
    assert stats.evicted > 1000
    assert len(buffer) == 1500


def test_hashes_are_of_each_response_alone():
    batch = make_batch([Item(0, (1, 2), 0), Item(1, (), 1), Item(2, (1, 2), 2), Item(3, (2, 1), 3), Item(4, (), 4)])
    a, empty, same, other, empty_too = response_hashes(batch)
    assert a == same
    assert empty == empty_too
    assert len({a, empty, other}) == 3
    assert len(response_hashes(TrajectoryBatch.empty())) == 0
