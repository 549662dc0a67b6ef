"""Runs of trajectories that are stored together, and how they are kept few and well filled.

Trajectories are found by their sequence numbers, which never change; blocks are rewritten, merged and dropped without
anyone else noticing. A trajectory costs 12 bytes here besides its content.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tba_hpc.trajectory import ROW_DTYPE, TrajectoryBatch

Content = TypeVar("Content")


def trajectory_bytes(rows: NDArray[np.void]) -> NDArray[np.int64]:
    """`[N]` what each trajectory takes of its batch; they add up to `TrajectoryBatch.nbytes`."""
    tokens = rows["prompt_length"].astype(np.int64) + 3 * rows["response_length"].astype(np.int64)
    return ROW_DTYPE.itemsize + 4 * tokens


class Block(Generic[Content]):
    """Trajectories of ascending sequence numbers. Dead ones take room until the block is rewritten."""

    __slots__ = ("content", "live_bytes", "live_rows", "nbytes", "sequences", "sizes")

    def __init__(
        self, sequences: NDArray[np.int64], sizes: NDArray[np.integer], content: Content, nbytes: int | None = None
    ) -> None:
        """`sequences [N]` and `sizes [N]` in bytes, N > 0. `nbytes`: of all; to be given where some are dead."""
        self.sequences = sequences
        """Never changed."""
        self.sizes = sizes.astype(np.uint32)
        """Zero once the trajectory is dead."""
        self.content = content
        """Never changed."""
        self.live_bytes = int(sizes.sum(dtype=np.int64))
        self.nbytes = self.live_bytes if nbytes is None else nbytes
        self.live_rows = int(np.count_nonzero(self.sizes))

    def copy(self) -> Block[Content]:
        """The block as it is now; what is never changed is shared."""
        return Block(self.sequences, self.sizes, self.content, self.nbytes)

    @property
    def first(self) -> int:
        return int(self.sequences[0])

    @property
    def last(self) -> int:
        return int(self.sequences[-1])

    @property
    def wasteful(self) -> bool:
        """Whether less than half of the bytes are alive."""
        return 2 * self.live_bytes < self.nbytes

    def positions(self, sequences: NDArray[np.int64]) -> NDArray[np.intp]:
        """Where in the block these trajectories are; it must have them."""
        return np.searchsorted(self.sequences, sequences)

    def live(self) -> NDArray[np.intp]:
        """Positions of those alive."""
        return np.flatnonzero(self.sizes)

    def kill(self, positions: NDArray[np.intp]) -> None:
        self.live_bytes -= int(self.sizes[positions].sum(dtype=np.int64))
        self.live_rows -= len(positions)
        self.sizes[positions] = 0


class Tier(ABC, Generic[Content]):
    """Blocks on one kind of storage, oldest first. At least half the bytes of each are alive."""

    def __init__(self) -> None:
        self.blocks: list[Block[Content]] = []
        self.nbytes = 0
        """Of all blocks, dead trajectories included."""

    @property
    def live_rows(self) -> int:
        return sum(block.live_rows for block in self.blocks)

    @abstractmethod
    def _put(self, batch: TrajectoryBatch) -> Content:
        """Stores a batch that is not empty."""

    @abstractmethod
    def _free(self, content: Content) -> None: ...

    @abstractmethod
    def select(self, block: Block[Content], positions: NDArray[np.intp]) -> TrajectoryBatch | None:
        """The trajectories at `positions` of the block, in that order. None if they are lost; then all of the block is
        dead, and the caller has to drop it."""

    @abstractmethod
    def _absorbs(self, nbytes: int, neighbour: int) -> bool:
        """Whether `nbytes` bytes that are to be written take along a neighbour of that many live bytes, lest blocks
        get many and small. Over time this must cost no more than in proportion to what was appended."""

    def restore(self, blocks: list[Block[Content]]) -> None:
        """Fills an empty tier with the blocks of another one."""
        assert not self.blocks
        self.blocks = blocks
        self.nbytes = sum(block.nbytes for block in blocks)

    def append(self, batch: TrajectoryBatch, sequences: NDArray[np.int64]) -> None:
        """Adds trajectories, newer than all others."""
        end = len(self.blocks)
        start, _ = self._reach(end, end, batch.nbytes)
        older, older_sequences = self.gather(start, end)
        self.replace(
            start, end, TrajectoryBatch.concatenate([older, batch]), np.concatenate([older_sequences, sequences])
        )

    def read(self, sequences: NDArray[np.int64]) -> list[TrajectoryBatch | None]:
        """The trajectories of ascending `sequences [n]`, block by block; None for those of a block that is lost."""
        located = list(self.locate(sequences))
        parts = [self.select(block, block.positions(sequences[part])) for block, part in located]
        for (block, _), batch in zip(located, parts, strict=True):
            if batch is None:
                self._tidy(block)
        return parts

    def discard(self, sequences: NDArray[np.int64]) -> None:
        """Drops trajectories, in ascending order."""
        touched = [(block, sequences[part]) for block, part in self.locate(sequences)]
        for block, dead in touched:
            block.kill(block.positions(dead))
        for block, _ in touched:
            self._tidy(block)

    def locate(self, sequences: NDArray[np.int64]) -> Iterator[tuple[Block[Content], slice]]:
        """The blocks of ascending `sequences [n]`, each with the part of them that is in it."""
        start = 0
        while start < len(sequences):
            block = self.blocks[self.find(int(sequences[start]))]
            stop = int(np.searchsorted(sequences, block.last, side="right"))
            yield block, slice(start, stop)
            start = stop

    def find(self, sequence: int) -> int:
        """Number of the block that has the trajectory, if any has; O(log)."""
        return bisect_right(self.blocks, sequence, key=lambda block: block.first) - 1

    def gather(self, start: int, stop: int) -> tuple[TrajectoryBatch, NDArray[np.int64]]:
        """What is alive in a run of blocks and not lost, with its sequence numbers. The caller replaces the run."""
        batches, sequences = [], [np.empty(0, np.int64)]
        for block in self.blocks[start:stop]:
            live = block.live()
            if len(live) and (batch := self.select(block, live)) is not None:
                batches.append(batch)
                sequences.append(block.sequences[live])
        return TrajectoryBatch.concatenate(batches), np.concatenate(sequences)

    def replace(self, start: int, stop: int, batch: TrajectoryBatch, sequences: NDArray[np.int64]) -> None:
        """Puts these trajectories in the place of a run of blocks. Nothing has changed if storing them fails."""
        old, new = self.blocks[start:stop], []
        if len(batch):
            new.append(Block(sequences, trajectory_bytes(batch.rows), self._put(batch)))
        self.blocks[start:stop] = new
        self.nbytes += sum(block.nbytes for block in new) - sum(block.nbytes for block in old)
        for block in old:
            self._free(block.content)

    def drop(self, start: int, stop: int) -> None:
        """Drops a run of blocks, whatever is in them."""
        self.replace(start, stop, TrajectoryBatch.empty(), np.empty(0, np.int64))

    def _tidy(self, block: Block[Content]) -> None:
        """Rewrites a block that became wasteful, with its small neighbours; drops one that is dead."""
        position = self.find(block.first)
        if position < 0 or self.blocks[position] is not block or not block.wasteful:
            return  # nothing to do, or done in the course of tidying another
        start, stop = position, position + 1
        if block.live_rows or self._are_small_neighbours(position - 1, position + 1):
            start, stop = self._reach(start, stop, block.live_bytes)
        self.replace(start, stop, *self.gather(start, stop))

    def _are_small_neighbours(self, left: int, right: int) -> bool:
        """Whether one of two blocks absorbs the other, if both exist."""
        if left < 0 or right >= len(self.blocks):
            return False
        return self._absorbs(self.blocks[left].live_bytes, self.blocks[right].live_bytes)

    def _reach(self, start: int, stop: int, nbytes: int) -> tuple[int, int]:
        """A run of blocks that is to be written as `nbytes` bytes, extended over the neighbours it absorbs."""
        while start > 0 and self._absorbs(nbytes, self.blocks[start - 1].live_bytes):
            start -= 1
            nbytes += self.blocks[start].live_bytes
        while stop < len(self.blocks) and self._absorbs(nbytes, self.blocks[stop].live_bytes):
            nbytes += self.blocks[stop].live_bytes
            stop += 1
        return start, stop
