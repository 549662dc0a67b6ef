"""Where the tokens are: the newest in RAM up to a limit, older ones in segments on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tba_hpc.replay.blocks import Block, Tier, trajectory_bytes
from tba_hpc.replay.segment import Segment, SegmentDirectory, SegmentError
from tba_hpc.trajectory import TrajectoryBatch

log = logging.getLogger(__name__)

_LEAST_SEGMENT = 2**20  # bytes; a file has a few kilobytes of its own, which must not come to matter
_LARGEST_RAM_BLOCK = 2**20  # bytes; to find one trajectory in a block takes time in proportion to its size

OnLost = Callable[[NDArray[np.int64]], None]
"""Told the sequence numbers, ascending, of trajectories that a damaged segment held."""


class RamTier(Tier[TrajectoryBatch]):
    def __init__(self, target: int) -> None:
        """`target`: size in bytes above which blocks are split and up to which they merge."""
        super().__init__()
        self._target = target

    def append(self, batch: TrajectoryBatch, sequences: NDArray[np.int64]) -> None:
        part = np.cumsum(trajectory_bytes(batch.rows)) // self._target
        for piece in np.split(np.arange(len(batch)), np.flatnonzero(np.diff(part)) + 1):
            super().append(batch.select(piece), sequences[piece])

    def _put(self, batch: TrajectoryBatch) -> TrajectoryBatch:
        return batch

    def _free(self, content: TrajectoryBatch) -> None:
        """Garbage collection does."""

    def select(self, block: Block[TrajectoryBatch], positions: NDArray[np.intp]) -> TrajectoryBatch:
        return block.content.select(positions)

    def _absorbs(self, nbytes: int, neighbour: int) -> bool:
        """Blocks arrive small, and a large one must not be copied for each: only those of like size merge, so that a
        byte is copied O(log) times."""
        return neighbour <= 2 * nbytes and nbytes + neighbour <= self._target


class DiskTier(Tier[Segment]):
    def __init__(self, segments: SegmentDirectory, target: int, on_lost: OnLost) -> None:
        super().__init__()
        self._segments = segments
        self._target = target
        self._on_lost = on_lost

    @property
    def file_bytes(self) -> int:
        return sum(block.content.nbytes for block in self.blocks)

    def _put(self, batch: TrajectoryBatch) -> Segment:
        return self._segments.write(batch)

    def _free(self, content: Segment) -> None:
        self._segments.remove(content)

    def select(self, block: Block[Segment], positions: NDArray[np.intp]) -> TrajectoryBatch | None:
        try:
            return self._segments.select(block.content, positions)
        except SegmentError as error:
            log.warning("%s; set aside, %d trajectories lost", error, block.live_rows)
        self._segments.set_aside(block.content)
        lost = block.live()
        block.kill(lost)
        self._on_lost(block.sequences[lost])
        return None

    def _absorbs(self, nbytes: int, neighbour: int) -> bool:
        """Blocks arrive large. One that fits in here has lost half its bytes or more since, and each merge leaves one
        block less."""
        return nbytes + neighbour <= self._target // 2


@dataclass(frozen=True, slots=True)
class StoreState:
    """What a store held at one moment, oldest first. Does not change when the store does."""

    disk: list[Block[Segment]]
    ram: list[Block[TrajectoryBatch]]
    """Newer than what is on disk."""


class BlockStore:
    """Trajectories by sequence number. Which of them are in RAM makes no difference to what is read."""

    def __init__(self, segments: SegmentDirectory, memory_limit: int, segment_bytes: int, on_lost: OnLost) -> None:
        """`memory_limit` and `segment_bytes` in bytes."""
        self._memory_limit = memory_limit
        self._target = min(segment_bytes, max(memory_limit, _LEAST_SEGMENT))
        self._segments = segments
        self.ram = RamTier(min(self._target, _LARGEST_RAM_BLOCK))
        self.disk = DiskTier(segments, self._target, on_lost)

    def append(self, batch: TrajectoryBatch, sequences: NDArray[np.int64]) -> None:
        """Adds trajectories, newer than all held. Raises `OSError` if RAM is full and a segment cannot be
        written."""
        self.ram.append(batch, sequences)
        while self.ram.nbytes > self._memory_limit:
            self._spill()

    def _spill(self) -> None:
        """Moves the oldest blocks in RAM to disk, about a segment's worth."""
        blocks, stop = self.ram.blocks, 1
        nbytes = blocks[0].live_bytes
        while stop < len(blocks) and nbytes + blocks[stop].live_bytes <= self._target:
            nbytes += blocks[stop].live_bytes
            stop += 1
        self.disk.append(*self.ram.gather(0, stop))
        self.ram.drop(0, stop)

    def discard(self, sequences: NDArray[np.int64]) -> None:
        """Drops trajectories, in ascending order."""
        on_disk = self._count_on_disk(sequences)
        self.disk.discard(sequences[:on_disk])
        self.ram.discard(sequences[on_disk:])

    def read(self, sequences: NDArray[np.int64]) -> TrajectoryBatch | None:
        """The trajectories `sequences [M]`, in that order; one may repeat. None if some turn out to be lost."""
        order = np.argsort(sequences, kind="stable")
        ascending = sequences[order]
        on_disk = self._count_on_disk(ascending)
        parts = self.disk.read(ascending[:on_disk]) + self.ram.read(ascending[on_disk:])
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        return TrajectoryBatch.concatenate(found).select(position)

    def _count_on_disk(self, ascending: NDArray[np.int64]) -> int:
        blocks = self.ram.blocks
        return int(np.searchsorted(ascending, blocks[0].first)) if blocks else len(ascending)

    def hold(self) -> StoreState:
        """What is held now. The files it refers to stay where they are until `release`; one hold at a time."""
        state = StoreState([block.copy() for block in self.disk.blocks], [block.copy() for block in self.ram.blocks])
        self._segments.hold(block.content for block in state.disk)
        return state

    def release(self) -> None:
        """Raises `OSError`."""
        self._segments.release()

    def adopt(self, folder: Path, number: int) -> Segment:
        """Takes in the file of a segment of another store. Raises `OSError`."""
        return self._segments.adopt(folder, number)

    def close(self) -> None:
        self._segments.close()
