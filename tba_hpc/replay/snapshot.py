"""A replay buffer as it was at one moment, and how it gets into a folder while the buffer goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tba_hpc.replay.blocks import Block
from tba_hpc.replay.files import link_or_copy
from tba_hpc.replay.index import ENTRY_DTYPE
from tba_hpc.replay.segment import Segment, write_segment
from tba_hpc.replay.snapshot_index import INDEX_NAME, SEGMENT_DTYPE, Counters, SnapshotIndex
from tba_hpc.replay.store import StoreState
from tba_hpc.trajectory import TrajectoryBatch

_QUERIES_AT_ONCE = 1000  # other threads stand still for as long as NumPy takes to join the entries of so many


def ram_name(number: int) -> str:
    return f"ram-{number:08d}.h5"


class ReplaySnapshot:
    """What `ReplayBuffer.snapshot` gives. One thread makes and releases it, another may write it in between.

    Until `release`, the buffer's folder keeps segments that the buffer has no more use for, and RAM keeps trajectories
    that the buffer has dropped or spilled: at most `memory_limit` bytes."""

    def __init__(
        self,
        counters: Counters,
        by_query: dict[int, NDArray[np.void]],
        store: StoreState,
        segment_bytes: int,
        release: Callable[[], None],
    ) -> None:
        """`by_query`: `[n]` of `ENTRY_DTYPE` for each prompt id. `release` is called once."""
        self._counters = counters
        self._by_query = by_query
        self._store = store
        self._segment_bytes = segment_bytes
        self._release: Callable[[], None] | None = release

    def write(self, folder: Path) -> None:
        """Puts everything into `folder`, which is made if it is missing and should hold nothing else; its own name in
        the folder around it is for the caller to sync. Segments on disk cost no room where the file system has hard
        links. Raises `OSError`, after which what is in the folder is of no use."""
        folder.mkdir(exist_ok=True)
        disk, ram = self._store.disk, self._store.ram
        ram_rows = [
            _write_blocks(folder / ram_name(i), blocks) for i, blocks in enumerate(_runs(ram, self._segment_bytes))
        ]
        SnapshotIndex(
            counters=self._counters.pack(),
            queries=np.fromiter(self._by_query, np.int64),
            query_sizes=np.fromiter(map(len, self._by_query.values()), np.int32),
            entries=_joined(list(self._by_query.values())),
            segments=np.array([_keep(block, folder) for block in disk], SEGMENT_DTYPE),
            segment_sequences=np.concatenate([np.empty(0, np.int64), *(block.sequences for block in disk)]),
            segment_sizes=np.concatenate([np.empty(0, np.uint32), *(block.sizes for block in disk)]),
            ram_rows=np.array(ram_rows, np.int32),
            ram_sequences=np.concatenate([np.empty(0, np.int64), *(block.sequences[block.live()] for block in ram)]),
        ).write(folder / INDEX_NAME)

    def release(self) -> None:
        """Lets the buffer delete what it has kept for the snapshot; for the thread of the buffer, after `write` has
        ended, well or not. A second call does nothing. Raises `OSError`."""
        if self._release is not None:
            release, self._release = self._release, None
            self._store = StoreState([], [])
            release()


def _keep(block: Block[Segment], folder: Path) -> tuple[int, int, int, int]:
    """Puts the segment into the folder; a row of `SEGMENT_DTYPE`. Its size is what the file has now: a segment that was
    damaged before costs its trajectories, not the snapshot."""
    segment = block.content
    target = folder / segment.path.name
    link_or_copy(segment.path, target)
    return segment.number, len(block.sequences), block.nbytes, target.stat().st_size


def _runs(blocks: list[Block[TrajectoryBatch]], nbytes: int) -> list[list[Block[TrajectoryBatch]]]:
    """The blocks in runs of about that many bytes."""
    part = np.cumsum([block.live_bytes for block in blocks]) // nbytes
    cuts = np.flatnonzero(np.diff(part)) + 1
    return [blocks[start:stop] for start, stop in pairwise([0, *cuts.tolist(), len(blocks)]) if start < stop]


def _write_blocks(path: Path, blocks: list[Block[TrajectoryBatch]]) -> int:
    """Writes what is alive of them as a segment; how many trajectories."""
    batch = TrajectoryBatch.concatenate([block.content.select(block.live()) for block in blocks])
    write_segment(path, batch)
    return len(batch)


def _joined(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """Entries of queries one after the other."""
    result = np.empty(sum(map(len, parts)), ENTRY_DTYPE)
    stop = 0
    for first in range(0, len(parts), _QUERIES_AT_ONCE):
        some = parts[first : first + _QUERIES_AT_ONCE]
        start, stop = stop, stop + sum(map(len, some))
        np.concatenate(some, out=result[start:stop])
    return result
