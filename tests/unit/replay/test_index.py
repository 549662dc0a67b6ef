"""The growable queue against a list, and what the buffer's tests cannot see of the index."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.replay.index import ENTRY_DTYPE, EntryQueue, ReplayIndex


def entries(sequences: list[int]) -> np.ndarray:
    result = np.zeros(len(sequences), ENTRY_DTYPE)
    result["sequence"] = sequences
    return result


@given(st.lists(st.tuples(st.sampled_from(["append", "drop", "keep"]), st.integers(0, 9), st.randoms()), max_size=30))
def test_entry_queue_is_a_list(operations):
    queue, expected, following = EntryQueue(entries([])), [], 0
    for operation, n, random in operations:
        if operation == "append":
            new = list(range(following, following + n))
            following += n
            queue.append(entries(new))
            expected += new
        elif operation == "drop":
            n = min(n, len(expected))
            assert queue.drop_oldest(n).tolist() == expected[:n]
            expected = expected[n:]
        else:
            mask = [random.random() < 0.7 for _ in expected]
            dropped = queue.keep(np.array(mask, np.bool_))
            assert dropped.tolist() == [s for s, keep in zip(expected, mask, strict=True) if not keep]
            expected = [s for s, keep in zip(expected, mask, strict=True) if keep]
        assert queue.entries["sequence"].tolist() == expected
        assert len(queue) == len(expected)
        assert queue.count_below(following // 2) == sum(s < following // 2 for s in expected)
        if expected:
            assert queue.newest == expected[-1]


def add(index: ReplayIndex, prompt_ids: list[int], arrival: int) -> None:
    """Responses that are all different."""
    hashes = np.random.default_rng(arrival).integers(2**63, size=len(prompt_ids), dtype=np.uint64)
    index.add(np.array(prompt_ids), hashes, np.zeros(len(prompt_ids), np.float32), arrival)


def test_one_busy_query_does_not_make_the_index_grow():
    """What is gone is cleared away, although the oldest trajectory of all stays, and the order is kept."""
    index = ReplayIndex(max_per_query=5, capacity=100)
    add(index, [7, 8, 7], arrival=0)
    for arrival in range(1, 200):
        add(index, [1] * 50, arrival)
        assert len(index._timeline) <= 2 * len(index) + 1024
    assert list(index.queries) == [1, 7, 8]
    assert len(index) == 8
    add(index, list(range(10, 103)), arrival=200)
    assert [len(index.entries(q)) for q in (7, 8, 1)] == [1, 1, 5]
    add(index, [200], arrival=201)
    assert 8 not in index.queries
    assert len(index.entries(7)) == 1
    add(index, [201, 202, 203], arrival=202)
    assert 7 not in index.queries
    assert len(index.entries(1)) == 3


def test_recent_is_what_arrived_last():
    index = ReplayIndex(max_per_query=10, capacity=100)
    add(index, [1, 1, 2], arrival=0)
    add(index, [1, 3], arrival=4)
    add(index, [3], arrival=4)
    assert list(index.recent_queries) == [1, 3]
    assert index.recent_entries(1)["sequence"].tolist() == [3]
    assert index.recent_entries(3)["sequence"].tolist() == [4, 5]


def test_an_arrival_above_the_capacity_leaves_its_newest():
    index = ReplayIndex(max_per_query=10, capacity=3)
    change = index.add(np.array([1, 2, 2, 3, 2]), np.arange(5, dtype=np.uint64), np.zeros(5, np.float32), arrival=0)
    assert (change.kept.tolist(), change.sequences.tolist(), change.dropped.tolist()) == ([2, 3, 4], [2, 3, 4], [])
    assert list(index.queries) == list(index.recent_queries) == [2, 3]


def test_forgotten_trajectories_leave_the_others_in_order():
    index = ReplayIndex(max_per_query=10, capacity=100)
    add(index, [1, 2, 1, 2, 3], arrival=0)
    add(index, [1, 4], arrival=1)
    index.forget(np.array([0, 4, 5]))
    assert list(index.queries) == [1, 2, 4]
    assert list(index.recent_queries) == [4]
    assert index.entries(1)["sequence"].tolist() == [2]
    assert len(index.recent_entries(1)) == 0
    assert len(index) == 4
