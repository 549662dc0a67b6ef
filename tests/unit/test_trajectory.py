"""Batches against lists of trajectories."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trajectory_cases import ARRAYS, assert_same_batch, trajectory_lists

from tba_hpc.trajectory import ROW_DTYPE, SampledBatch, Trajectory, TrajectoryBatch, offsets, ragged_indices

lists = trajectory_lists()


def one(length: int = 2, prompt_id: int = 0) -> Trajectory:
    logprobs = np.full(length, -0.5, np.float32)
    return Trajectory(
        prompt_id=prompt_id,
        prompt_tokens=np.array([1, 2, 3], np.int32),
        response_tokens=np.arange(length, dtype=np.int32),
        behavior_logprobs=logprobs,
        reference_logprobs=logprobs,
        reward=1.0,
        correct=True,
        finished=True,
        temperature=1.0,
        policy_version=7,
        reference_version=0,
        searcher=0,
    )


def positions_in(values: list) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(values) - 1), max_size=12) if values else st.just([])


def batch_of(trajectories: list[Trajectory]) -> TrajectoryBatch:
    return TrajectoryBatch.from_trajectories(trajectories)


@given(lists)
def test_a_batch_gives_its_trajectories_back(trajectories):
    batch = batch_of(trajectories)
    assert len(batch) == len(trajectories)
    for before, after in zip(trajectories, batch, strict=True):
        for field in fields(Trajectory):
            np.testing.assert_array_equal(getattr(after, field.name), getattr(before, field.name), field.name)
    assert batch.nbytes == sum(getattr(batch, name).nbytes for name in ARRAYS)


@given(lists, st.data())
def test_select_is_a_list_comprehension(trajectories, data):
    indices = data.draw(positions_in(trajectories))
    selected = batch_of(trajectories).select(np.array(indices, np.int64))
    assert_same_batch(selected, batch_of([trajectories[i] for i in indices]))


@given(lists, st.data(), st.sampled_from([np.int64, np.int32, np.uint64]))
def test_select_of_a_run_is_a_slice(trajectories, data, dtype):
    start = data.draw(st.integers(0, len(trajectories)))
    stop = data.draw(st.integers(start, len(trajectories)))
    selected = batch_of(trajectories).select(np.arange(start, stop, dtype=dtype))
    assert_same_batch(selected, batch_of(trajectories[start:stop]))


@pytest.mark.parametrize("indices", [[0, 1, 2], [1, 2], [2, 0], [1, 1]])
def test_select_copies(indices):
    batch = batch_of([one(2), one(1), one(3)])
    selected = batch.select(np.array(indices))
    assert not any(np.shares_memory(getattr(selected, name), getattr(batch, name)) for name in ARRAYS)


@given(st.lists(lists, max_size=5))
def test_concatenate_is_a_sum_of_lists(parts):
    whole = TrajectoryBatch.concatenate([batch_of(part) for part in parts])
    assert_same_batch(whole, batch_of([t for part in parts for t in part]))


@given(st.lists(st.integers(0, 5), max_size=10), st.data())
def test_ragged_indices_are_the_elements_of_the_runs(lengths, data):
    bounds = offsets(np.array(lengths, np.int32))
    chosen = data.draw(positions_in(lengths))
    expected = [element for i in chosen for element in range(bounds[i], bounds[i + 1])]
    assert ragged_indices(bounds, np.array(chosen, np.int64)).tolist() == expected


def test_offsets_do_not_overflow_32_bits():
    assert offsets(np.full(3, 2**31 - 1, np.int32))[-1] == 3 * (2**31 - 1)


def test_the_row_is_packed_and_little_endian():
    assert ROW_DTYPE.itemsize == sum(ROW_DTYPE[name].itemsize for name in ROW_DTYPE.names)
    assert ROW_DTYPE.newbyteorder("<") == ROW_DTYPE


@pytest.mark.parametrize("name", ARRAYS[1:])
def test_arrays_that_contradict_the_rows_are_refused(name):
    batch = batch_of([one(2), one(3)])
    with pytest.raises(ValueError, match="where the rows say 6 and 5"):
        replace(batch, **{name: getattr(batch, name)[:-1]})


def test_negative_lengths_are_refused_even_where_the_sums_agree():
    batch = batch_of([one(2), one(3)])
    rows = batch.rows.copy()
    rows["response_length"] = [-1, 6]
    with pytest.raises(ValueError, match="negative length"):
        replace(batch, rows=rows)


def test_rows_of_another_layout_are_refused():
    with pytest.raises(ValueError, match="not ROW_DTYPE"):
        replace(batch_of([one()]), rows=np.zeros(1, "<i4"))


def test_logprobs_of_one_trajectory_do_not_make_up_for_those_of_another():
    logprobs = np.zeros(3, np.float32)
    swapped = [replace(one(2), behavior_logprobs=logprobs), replace(one(3), behavior_logprobs=logprobs[:2])]
    with pytest.raises(AssertionError):
        batch_of(swapped)


def test_an_index_out_of_range_is_an_error():
    batch = batch_of([one(), one()])
    for indices in ([2], [1, 2], [5, 0]):
        with pytest.raises(IndexError):
            batch.select(np.array(indices))


def test_select_of_a_sampled_batch_keeps_rows_together():
    batch = batch_of([one(i, prompt_id=i) for i in range(4)])
    sampled = SampledBatch(batch, np.array([0, 0, 1, 1], np.int32), np.array([True, True, False, False]))
    part = sampled.select(np.array([3, 0]))
    assert part.trajectories.rows["prompt_id"].tolist() == [3, 0]
    assert part.group_ids.tolist() == [1, 0]
    assert part.recent.tolist() == [False, True]
    assert len(part) == 2
