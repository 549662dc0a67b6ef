"""Blocks: few, well filled, and invisible from outside."""

from __future__ import annotations

import numpy as np
import pytest
from replay_cases import Item, assert_same, make_batch

from tba_hpc.replay.blocks import trajectory_bytes
from tba_hpc.replay.segment import SegmentDirectory
from tba_hpc.replay.store import BlockStore
from tba_hpc.trajectory import TrajectoryBatch


def items(first: int, n: int, length: int = 100) -> TrajectoryBatch:
    return make_batch(Item(i, (i,) * length, i) for i in range(first, first + n))


def refuse(sequences: np.ndarray) -> None:
    pytest.fail(f"{sequences} reported lost")


def make_store(path, memory_limit: int, segment_bytes: int) -> BlockStore:
    return BlockStore(SegmentDirectory(path), memory_limit, segment_bytes, on_lost=refuse)


def test_sizes_add_up_to_those_of_the_batch():
    batch = make_batch(Item(i, (1,) * i, i) for i in range(20))
    assert trajectory_bytes(batch.rows).sum() == batch.nbytes


def test_reads_in_any_order_across_ram_and_disk(tmp_path):
    whole = items(0, 200)
    store = make_store(tmp_path, memory_limit=50_000, segment_bytes=40_000)
    for start in range(0, 200, 10):
        store.append(whole.select(np.arange(start, start + 10)), np.arange(start, start + 10))
    assert store.ram.live_rows > 0
    assert len(store.disk.blocks) > 2
    chosen = np.random.default_rng(0).integers(200, size=300)
    assert_same(store.read(chosen), whole.select(chosen))
    store.close()


def test_small_batches_make_few_blocks_in_ram(tmp_path):
    store = make_store(tmp_path, memory_limit=2**30, segment_bytes=2**30)
    for i in range(600):
        store.append(items(i, 1), np.array([i]))
    assert len(store.ram.blocks) <= 12
    assert store.ram.live_rows == 600


def test_a_large_batch_is_cut_to_blocks(tmp_path):
    store = make_store(tmp_path, memory_limit=2**30, segment_bytes=20_000)
    store.append(items(0, 100), np.arange(100))
    assert max(block.nbytes for block in store.ram.blocks) <= 20_000 + 2000
    assert_same(store.read(np.arange(100)), items(0, 100))


def test_segments_with_little_left_in_them_merge(tmp_path):
    """One trajectory in fifty stays: a twentieth of a segment each."""
    store = make_store(tmp_path, memory_limit=2**20, segment_bytes=62_000)
    for start in range(0, 2000, 100):
        store.append(items(start, 100), np.arange(start, start + 100))
    files = len(list(tmp_path.iterdir()))
    stays = np.arange(0, 2000, 50)
    store.discard(np.setdiff1d(np.arange(2000), stays))
    assert files > 20
    assert len(list(tmp_path.iterdir())) == len(store.disk.blocks) <= 3
    assert_same(store.read(stays), items(0, 2000).select(stays))
    store.close()


@pytest.mark.parametrize("tier", ["ram", "disk"])
def test_what_is_stored_is_at_most_twice_what_is_alive(tmp_path, tier):
    store = make_store(tmp_path, memory_limit=0 if tier == "disk" else 2**30, segment_bytes=100_000)
    store.append(items(0, 150), np.arange(150))
    order, size = np.random.default_rng(0).permutation(150), items(0, 150).nbytes / 150
    for n, sequence in enumerate(order, start=1):
        store.discard(np.array([sequence]))
        used = store.disk.file_bytes - 6000 * len(store.disk.blocks) if tier == "disk" else store.ram.nbytes
        assert used <= 2 * size * (150 - n) + 300  # prompts differ by some tokens
        rest = np.sort(order[n:])
        if n % 25 == 0 and len(rest):
            assert_same(store.read(rest), items(0, 150).select(rest))
    store.close()


def test_a_segment_with_nothing_left_in_it_is_deleted_unread(tmp_path):
    store = make_store(tmp_path, memory_limit=0, segment_bytes=30_000)
    for start in range(0, 100, 20):
        store.append(items(start, 20), np.arange(start, start + 20))
    assert len(store.disk.blocks) == 5
    (store.disk.blocks[2].content.path).write_bytes(b"damaged")
    store.discard(np.arange(40, 60))
    assert len(list(tmp_path.iterdir())) == 4
    store.discard(np.setdiff1d(np.arange(100), np.arange(40, 60)))
    assert not list(tmp_path.iterdir())
    assert store.disk.nbytes == store.disk.file_bytes == 0


def test_a_failed_spill_loses_nothing(tmp_path):
    store = make_store(tmp_path / "segments", memory_limit=30_000, segment_bytes=30_000)
    store.append(items(0, 20), np.arange(20))
    (tmp_path / "segments").rmdir()
    with pytest.raises(OSError, match="segment-00000000"):
        store.append(items(20, 20), np.arange(20, 40))
    assert_same(store.read(np.arange(40)), items(0, 40))


def test_a_loss_in_the_middle_of_a_read_takes_nothing_else(tmp_path):
    """The neighbours of the damaged segment merge once it is gone, in the midst of being read themselves."""
    lost = []
    store = BlockStore(SegmentDirectory(tmp_path), memory_limit=0, segment_bytes=62_000, on_lost=lost.append)
    for start in range(0, 60, 20):
        store.append(items(start, 20), np.arange(start, start + 20))
    assert len(store.disk.blocks) == 3
    store.discard(np.array([*range(9), *range(40, 49)]))
    store.disk.blocks[1].content.path.write_bytes(b"damaged")
    stays = np.array([*range(9, 20), *range(49, 60)])
    assert store.read(np.arange(9, 60)[np.r_[:31, 40:51]]) is None
    assert [part.tolist() for part in lost] == [list(range(20, 40))]
    assert len(store.disk.blocks) == 1
    assert_same(store.read(stays), items(0, 60).select(stays))
    store.close()
