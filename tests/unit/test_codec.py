"""Packed batches: every batch comes back, and nothing else is taken for one."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from trajectory_cases import assert_same_batch, trajectory_lists

from tba_hpc.codec import HEADER, CodecError, pack, unpack
from tba_hpc.trajectory import TrajectoryBatch

batches = trajectory_lists().map(TrajectoryBatch.from_trajectories)


@given(batches)
@example(TrajectoryBatch.empty())
def test_round_trip(batch):
    packed = pack(batch)
    assert packed.dtype == np.uint8
    assert len(packed) % 8 == 0
    assert_same_batch(unpack(packed), batch)


@given(batches, st.integers(0, 7))
def test_unpacks_from_any_place_of_a_buffer_that_cannot_be_written(batch, shift):
    packed = pack(batch)
    buffer = np.concatenate([np.zeros(shift, np.uint8), packed, np.ones(5, np.uint8)])
    buffer.flags.writeable = False
    assert_same_batch(unpack(buffer[shift : shift + len(packed)]), batch)


def test_an_empty_batch_is_a_header():
    assert len(pack(TrajectoryBatch.empty())) == HEADER.itemsize


@given(batches.filter(len))
def test_unpacking_copies_nothing(batch):
    packed = pack(batch)
    assert np.shares_memory(unpack(packed).rows, packed)


@given(batches, st.data())
def test_a_flipped_bit_is_refused(batch, data):
    packed = pack(batch)
    position = data.draw(st.integers(0, len(packed) - 1))
    packed[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CodecError):
        unpack(packed)


@given(batches, st.data())
def test_any_other_byte_is_refused(batch, data):
    packed = pack(batch)
    position = data.draw(st.integers(0, len(packed) - 1))
    packed[position] = data.draw(st.integers(0, 255).filter(lambda byte: byte != packed[position]))
    with pytest.raises(CodecError):
        unpack(packed)


@given(batches, st.data())
def test_a_truncation_is_refused(batch, data):
    packed = pack(batch)
    with pytest.raises(CodecError, match="bytes"):
        unpack(packed[: data.draw(st.integers(0, len(packed) - 1))])


@given(batches, st.binary(min_size=1, max_size=40))
def test_an_extension_is_refused(batch, more):
    with pytest.raises(CodecError, match="bytes where the header announces"):
        unpack(np.concatenate([pack(batch), np.frombuffer(more, np.uint8)]))


@given(st.binary(max_size=200))
def test_noise_is_refused(noise):
    with pytest.raises(CodecError):
        unpack(np.frombuffer(noise, np.uint8))


@given(batches.filter(len), st.sampled_from(["prompt_length", "response_length"]), st.sampled_from([-1, 1, 2**31 - 1]))
def test_lengths_that_contradict_the_arrays_are_refused_under_a_valid_checksum(batch, field, value):
    """What a sender's mistake, not the line's, would look like."""
    packed = pack(batch)
    rows = unpack(packed).rows
    rows[field][0] = rows[field][0] + 1 if value == 1 else value
    resign(packed)
    with pytest.raises(CodecError, match=r"negative length|where the rows say"):
        unpack(packed)


@pytest.mark.parametrize("field", ["rows", "prompt_tokens", "response_tokens"])
@pytest.mark.parametrize("count", [-1, 1, 2**62, 2**63 - 1])
def test_counts_that_contradict_the_size_are_refused_under_a_valid_checksum(field, count):
    packed = pack(TrajectoryBatch.empty())
    packed.view(HEADER)[field] = count
    resign(packed)
    with pytest.raises(CodecError, match=r"negative sizes|where the header announces"):
        unpack(packed)


def resign(packed: np.ndarray) -> None:
    """Makes the checksum right again."""
    packed[: HEADER.itemsize].view(HEADER)["checksum"] = zlib.crc32(packed[8:])
