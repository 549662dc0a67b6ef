"""The replay buffer: an index of what is held, a store of tokens, and samplers over the index."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from tba_hpc.config import BufferConfig
from tba_hpc.replay.index import IndexState, ReplayIndex
from tba_hpc.replay.restore import SavedReplay
from tba_hpc.replay.sampler import Group, Mixture, Recent, RewardSoftmax, Uniform
from tba_hpc.replay.segment import SegmentDirectory
from tba_hpc.replay.snapshot import ReplaySnapshot
from tba_hpc.replay.snapshot_index import Counters
from tba_hpc.replay.store import BlockStore
from tba_hpc.trajectory import SampledBatch, TrajectoryBatch


@dataclass(frozen=True, slots=True)
class AddReport:
    """What became of a batch of N trajectories. The buffer has grown by N − duplicates − evicted."""

    added: int
    """Of the batch, those now held."""
    duplicates: int
    """Dropped because the same response to the same prompt came again: older ones, or earlier ones of the batch."""
    evicted: int
    """Dropped for want of room: beyond the query's share, or the oldest of all."""


@dataclass(frozen=True, slots=True)
class BufferStats:
    queries: int
    """Of which trajectories are held."""
    in_ram: int
    """Trajectories."""
    on_disk: int
    """Trajectories."""
    ram_bytes: int
    """Of trajectories in RAM, those dropped but not yet cleared away included; without the index."""
    disk_bytes: int
    """Of segment files."""
    evicted: int
    """In all so far."""
    duplicates: int
    """In all so far."""
    lost: int
    """Trajectories that damaged segments held, in all so far."""


class ReplayBuffer:
    """Trajectories of all searchers, to draw training batches from. For one thread."""

    def __init__(self, config: BufferConfig, directory: Path, seed: int) -> None:
        """Segments go to `directory`, which is made if it is missing. Raises `ValueError` if it holds segments."""
        self._seed = seed
        self._deduplicate = config.deduplicate
        self._segment_bytes = config.segment_bytes
        self._added = 0  # trajectories so far
        self._index = ReplayIndex(config.max_per_query, config.capacity)
        self._store = BlockStore(
            SegmentDirectory(directory), config.memory_limit, config.segment_bytes, on_lost=self._lose
        )
        off_policy = Mixture(
            [(config.reward_softmax, RewardSoftmax(config.reward_temperature)), (1 - config.reward_softmax, Uniform())]
        )
        self._recent = Recent()
        self._mixture = Mixture([(config.most_on_policy, self._recent), (1 - config.most_on_policy, off_policy)])
        self._latest_arrival: int | None = None
        self._duplicates = self._evicted = self._lost = 0

    def __len__(self) -> int:
        """Trajectories held."""
        return len(self._index)

    @property
    def latest_arrival(self) -> int | None:
        """None as long as nothing has been added."""
        return self._latest_arrival

    def add(self, batch: TrajectoryBatch, arrival: int) -> AddReport:
        """Takes a copy of the trajectories, the last one the newest.

        `arrival` is the number of the sync that delivered them; several batches may have the same. A sync that
        delivered nothing does not count: what came before it remains recent. Costs O(log) a trajectory in what the
        buffer holds, and a vectorised pass over the entries of each query in the batch. Raises `ValueError`, and
        changes nothing, for an arrival before the latest and a reward that is not a number; `OSError` if a segment
        cannot be written, after which the buffer is of no use."""
        self._check(batch, arrival)
        self._latest_arrival = arrival
        change = self._index.add(batch.rows["prompt_id"], self._identities(batch), batch.rows["reward"], arrival)
        self._store.discard(change.dropped)
        self._store.append(batch.select(change.kept), change.sequences)
        self._duplicates += change.duplicates
        self._evicted += change.evicted
        return AddReport(len(change.kept), change.duplicates, change.evicted)

    def _identities(self, batch: TrajectoryBatch) -> NDArray[np.uint64]:
        """`[N]` what makes two trajectories of a query duplicates: equal tokens, or nothing at all."""
        if self._deduplicate:
            return response_hashes(batch)
        first, self._added = self._added, self._added + len(batch)
        return np.arange(first, self._added, dtype=np.uint64)

    def _check(self, batch: TrajectoryBatch, arrival: int) -> None:
        if self._latest_arrival is not None and arrival < self._latest_arrival:
            raise ValueError(f"arrival {arrival} comes after arrival {self._latest_arrival}; arrivals do not go back")
        bad = np.isnan(batch.rows["reward"])
        if bad.any():
            prompt_id = int(batch.rows["prompt_id"][bad][0])
            raise ValueError(f"a response to prompt {prompt_id} has reward NaN; correct the task's score()")

    def clear(self) -> None:
        """Drops all that is held."""
        sequences = self._index.sequences()
        self._index.forget(sequences)
        self._store.discard(sequences)
        self._evicted += len(sequences)

    def sample(self, n_queries: int, samples_per_query: int, step: int, recent_only: bool = False) -> SampledBatch:
        """B = `n_queries` groups of K = `samples_per_query` trajectories.

        Each group is of the latest arrival with probability `most_on_policy`, always if `recent_only`; otherwise of
        any query, its responses drawn by softmax of reward with probability `reward_softmax`, else uniformly. Queries
        of a batch and responses of a group are distinct as far as there are enough. The draw depends on the seed,
        `step` and the trajectories held, not on how they came to be held or where. Raises `ValueError` when empty."""
        if min(n_queries, samples_per_query) < 1:
            raise ValueError(f"a batch of {n_queries} queries × {samples_per_query} trajectories holds nothing")
        sampler = self._recent if recent_only else self._mixture
        while len(self):
            rng = np.random.default_rng([self._seed, step])
            groups = sampler.draw(self._index, n_queries, samples_per_query, set(), rng)
            trajectories = self._store.read(np.concatenate([group.sequences for group in groups]))
            if trajectories is not None:
                return _sampled(groups, trajectories)
        raise ValueError("the replay buffer is empty; add trajectories before sampling")

    def contents(self) -> tuple[NDArray[np.int64], TrajectoryBatch]:
        """All N trajectories held, oldest first, with their sequence numbers `[N]`. Takes the RAM that this takes."""
        while True:
            sequences = self._index.sequences()
            trajectories = self._store.read(sequences)
            if trajectories is not None:
                return sequences, trajectories

    def snapshot(self) -> ReplaySnapshot:
        """The buffer as it is now, to be written by another thread; the buffer may go on meanwhile. No tokens are
        copied: costs O(queries + blocks), and 4 bytes for each trajectory on disk or in RAM. The one before has to be
        released first."""
        state = self._index.state()
        counters = Counters(
            next_sequence=state.next_sequence,
            recent_from=state.recent_from,
            latest_delivery=state.latest_arrival,
            latest_arrival=self._latest_arrival,
            added=self._added,
            duplicates=self._duplicates,
            evicted=self._evicted,
            lost=self._lost,
        )
        store = self._store.hold()
        return ReplaySnapshot(counters, state.by_query, store, self._segment_bytes, self._store.release)

    def restore(self, folder: Path) -> None:
        """Makes a new buffer what another one was when the snapshot in `folder` was taken: it draws the same samples
        from the same additions. Limits may be other ones; lower ones apply from the next `add` on, that of RAM at once.
        `folder` is not changed and may be deleted later. Segments on disk are linked, and verified when first read, as
        always. Raises `ReplayRestoreError` where the folder is incomplete or damaged, and `OSError`; the buffer is of
        no use after either."""
        saved = SavedReplay(folder)
        counters = saved.counters
        self._index.restore(
            IndexState(saved.by_query(), counters.next_sequence, counters.recent_from, counters.latest_delivery)
        )
        self._latest_arrival, self._added = counters.latest_arrival, counters.added
        self._duplicates, self._evicted, self._lost = counters.duplicates, counters.evicted, counters.lost
        self._store.disk.restore(saved.disk_blocks(self._store.adopt))
        for trajectories, sequences in saved.ram_batches():
            self._store.append(trajectories, sequences)

    def _lose(self, sequences: NDArray[np.int64]) -> None:
        self._index.forget(sequences)
        self._lost += len(sequences)

    def stats(self) -> BufferStats:
        """O(blocks)."""
        ram, disk = self._store.ram, self._store.disk
        return BufferStats(
            queries=len(self._index.queries),
            in_ram=ram.live_rows,
            on_disk=disk.live_rows,
            ram_bytes=ram.nbytes,
            disk_bytes=disk.file_bytes,
            evicted=self._evicted,
            duplicates=self._duplicates,
            lost=self._lost,
        )

    def close(self) -> None:
        """Closes all files. Segments stay where they are."""
        self._store.close()


def response_hashes(batch: TrajectoryBatch) -> NDArray[np.uint64]:
    """`[N]` XXH3-64 of each response's token ids."""
    tokens = np.ascontiguousarray(batch.response_tokens).view(np.uint8).data
    ends = (4 * batch.response_offsets).tolist()
    digests = (xxhash.xxh3_64_intdigest(tokens[start:end]) for start, end in pairwise(ends))
    return np.fromiter(digests, np.uint64, len(batch))


def _sampled(groups: list[Group], trajectories: TrajectoryBatch) -> SampledBatch:
    k = len(groups[0].sequences)
    return SampledBatch(
        trajectories,
        group_ids=np.repeat(np.arange(len(groups), dtype=np.int32), k),
        recent=np.repeat(np.array([group.recent for group in groups]), k),
    )
