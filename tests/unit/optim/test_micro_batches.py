"""Plans lose no row, keep to the budget, and split only what must be split."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.optim.micro_batches import plan, shard

ROWS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 6)), max_size=40)


@given(ROWS, st.integers(1, 400))
def test_plan_is_a_partition_within_the_budget(rows: list[tuple[int, int]], budget: int) -> None:
    lengths = np.array([length for length, _ in rows], np.int32)
    groups = np.array([group for _, group in rows], np.int32)
    plans = plan(lengths, groups, budget)
    assert sorted(np.concatenate([m.indices for m in plans]).tolist() if plans else []) == list(range(len(rows)))
    for m in plans:
        assert len(m.indices) * lengths[m.indices].max() <= budget or len(m.indices) == 1


@given(ROWS, st.integers(1, 400))
def test_exactly_the_groups_above_the_budget_are_split(rows: list[tuple[int, int]], budget: int) -> None:
    lengths = np.array([length for length, _ in rows], np.int32)
    groups = np.array([group for _, group in rows], np.int32)
    for m in plan(lengths, groups, budget):
        for group in np.unique(groups[m.indices]):
            members = np.flatnonzero(groups == group)
            assert m.split == (len(members) * lengths[members].max() > budget)
            assert m.split or np.isin(members, m.indices).all()


def test_similar_lengths_share_a_micro_batch() -> None:
    lengths = np.array([10, 100, 11, 99, 12, 98, 13, 97])
    plans = plan(lengths, np.array([0, 1, 0, 1, 2, 3, 2, 3]), budget=400)
    assert [sorted(lengths[m.indices].tolist()) for m in plans] == [[97, 98, 99, 100], [10, 11, 12, 13]]


def test_rows_of_several_split_groups_are_pooled() -> None:
    lengths = np.array([90, 10, 10, 90, 10, 10])
    plans = plan(lengths, np.array([0, 0, 0, 1, 1, 1]), budget=180)
    assert [m.split for m in plans] == [True, True]
    assert [lengths[m.indices].tolist() for m in plans] == [[90, 90], [10, 10, 10, 10]]


def test_one_row_above_the_budget_goes_alone() -> None:
    plans = plan(np.array([50, 3, 3]), np.array([0, 1, 1]), budget=10)
    assert [(m.indices.tolist(), m.split) for m in plans] == [([0], True), ([1, 2], False)]


@given(ROWS, st.integers(1, 5))
def test_shards_are_whole_groups_and_balanced(rows: list[tuple[int, int]], n_trainers: int) -> None:
    lengths = np.array([length for length, _ in rows], np.int64)
    groups = np.array([group for _, group in rows], np.int32)
    shares = shard(lengths, groups, n_trainers)
    assert len(shares) == n_trainers
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(rows)))
    assert all((np.diff(share) > 0).all() for share in shares)
    held = [set(groups[share].tolist()) for share in shares]
    assert sum(map(len, held)) == len(set(groups.tolist()))
    assert sum(bool(h) for h in held) == min(n_trainers, len(set(groups.tolist())))
    tokens = [int(lengths[share].sum()) for share in shares]
    heaviest_group = max((int(lengths[groups == g].sum()) for g in set(groups.tolist())), default=0)
    assert max(tokens) - min(tokens) <= heaviest_group
