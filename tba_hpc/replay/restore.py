"""A snapshot of a replay buffer read from its folder, of which nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tba_hpc.replay.blocks import Block
from tba_hpc.replay.segment import Segment, SegmentError, read_segment, segment_name
from tba_hpc.replay.snapshot import ram_name
from tba_hpc.replay.snapshot_index import INDEX_NAME, Counters, SnapshotIndex
from tba_hpc.trajectory import TrajectoryBatch, offsets

Adopt = Callable[[Path, int], Segment]
"""Takes over the segment of a folder that has the number."""


class ReplayRestoreError(ValueError):
    """What is in the folder of a snapshot is not, or not all, what was written there."""


class SavedReplay:
    """What `ReplaySnapshot.write` left in a folder."""

    def __init__(self, folder: Path) -> None:
        """Reads the index, and looks whether the segments are there. Raises `ReplayRestoreError`."""
        self._folder = folder
        path = folder / INDEX_NAME
        try:
            self._index = SnapshotIndex.read(path)
        except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ReplayRestoreError(f"{path} is no index of a replay buffer: {error}") from error
        for number, file_bytes in self._index.segments[["number", "file_bytes"]].tolist():
            _check_file(folder / segment_name(number), file_bytes)

    @property
    def counters(self) -> Counters:
        return Counters.unpack(self._index.counters)

    def by_query(self) -> dict[int, NDArray[np.void]]:
        """`[n]` of `ENTRY_DTYPE` for each prompt id, arrays of their own."""
        bounds = pairwise(offsets(self._index.query_sizes).tolist())
        entries = self._index.entries
        return {q: entries[a:b].copy() for q, (a, b) in zip(self._index.queries.tolist(), bounds, strict=True)}

    def disk_blocks(self, adopt: Adopt) -> list[Block[Segment]]:
        """Oldest first. Raises `OSError`."""
        index = self._index
        bounds = pairwise(offsets(index.segments["rows"]).tolist())
        return [
            Block(index.segment_sequences[a:b], index.segment_sizes[a:b], adopt(self._folder, number), nbytes)
            for (number, _, nbytes, _), (a, b) in zip(index.segments.tolist(), bounds, strict=True)
        ]

    def ram_batches(self) -> Iterator[tuple[TrajectoryBatch, NDArray[np.int64]]]:
        """What was in RAM with its sequence numbers, oldest first, one file at a time. Raises `ReplayRestoreError`."""
        for i, (start, stop) in enumerate(pairwise(offsets(self._index.ram_rows).tolist())):
            path = self._folder / ram_name(i)
            try:
                batch = read_segment(path)
            except SegmentError as error:
                raise ReplayRestoreError(str(error)) from error
            if len(batch) != stop - start:
                raise ReplayRestoreError(f"{path} holds {len(batch)} trajectories instead of {stop - start}")
            yield batch, self._index.ram_sequences[start:stop]


def _check_file(path: Path, nbytes: int) -> None:
    if not path.is_file():
        raise ReplayRestoreError(f"{path} is missing")
    if path.stat().st_size != nbytes:
        raise ReplayRestoreError(f"{path} has {path.stat().st_size} bytes instead of {nbytes}")
