"""What a replay buffer holds: which trajectories of which query, in the order of their arrival. Knows no tokens.

Every trajectory gets a *sequence number* when it arrives and keeps it for life, wherever its tokens are moved. All
orders here are orders of sequence numbers: a higher one is newer. A trajectory costs 36 bytes here, up to three times
that with room to grow and entries not yet cleared away.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedList

ENTRY_DTYPE = np.dtype(
    [
        ("sequence", "<i8"),
        ("hash", "<u8"),  # of the response's tokens: what makes two trajectories of a query duplicates
        ("reward", "<f4"),
    ]
)
"""What is known of one trajectory of a query."""

_TIMELINE_DTYPE = np.dtype([("sequence", "<i8"), ("prompt_id", "<i8")])
_TIMELINE_SLACK = 1024  # entries; below this, clearing the timeline is not worth the effort


class EntryQueue:
    """Entries in ascending order of sequence number; appending and dropping the oldest are amortised O(1) an entry.

    Entries are never overwritten, so a view of some stays as it is."""

    __slots__ = ("_array", "_start", "_stop")

    def __init__(self, entries: NDArray[np.void]) -> None:
        """Takes `entries [n]` over."""
        self._array = entries
        self._start, self._stop = 0, len(entries)

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def entries(self) -> NDArray[np.void]:
        """`[n]`, oldest first; a view of what is held now."""
        return self._array[self._start : self._stop]

    @property
    def newest(self) -> int:
        """Sequence number of the last entry."""
        return int(self._array["sequence"][self._stop - 1])

    def append(self, entries: NDArray[np.void]) -> None:
        if self._stop + len(entries) > len(self._array):
            self._resize((len(self) + len(entries)) * 3 // 2)
        self._array[self._stop : self._stop + len(entries)] = entries
        self._stop += len(entries)

    def drop_oldest(self, n: int) -> NDArray[np.int64]:
        """Sequence numbers `[n]` of the entries dropped."""
        dropped = self.entries["sequence"][:n].copy()
        self._start += n
        if 4 * len(self) < len(self._array):
            self._resize(len(self) * 3 // 2)
        return dropped

    def keep(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Drops the entries where `mask [n]` is false; their sequence numbers."""
        dropped: NDArray[np.int64] = self.entries["sequence"][~mask]
        self._array = self.entries[mask]
        self._start, self._stop = 0, len(self._array)
        return dropped

    def count_below(self, sequence: int) -> int:
        """How many entries are older than `sequence`; O(log n)."""
        return bisect_left(self.entries["sequence"], sequence)

    def _resize(self, capacity: int) -> None:
        array = np.empty(capacity, self._array.dtype)
        array[: len(self)] = self.entries
        self._array, self._start, self._stop = array, 0, len(self)


@dataclass(frozen=True, slots=True)
class Change:
    """What adding N trajectories did to the index."""

    kept: NDArray[np.intp]
    """`[M]` ascending: which of the N are now held."""
    sequences: NDArray[np.int64]
    """`[M]` the numbers given to them."""
    dropped: NDArray[np.int64]
    """Ascending: those held before and no longer."""
    duplicates: int
    """How many, old or just added, were dropped because the same response came again."""
    evicted: int
    """How many, old or just added, were dropped for want of room."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexState:
    """What an index held at one moment. Does not change when the index does."""

    by_query: dict[int, NDArray[np.void]]
    """`[n]` of `ENTRY_DTYPE`, n > 0, oldest first, for each prompt id."""
    next_sequence: int
    recent_from: int
    """Sequence numbers of the latest arrival start here."""
    latest_arrival: int | None
    """None if nothing has arrived so far."""


class ReplayIndex:
    """Trajectories by query.

    Adding costs O(trajectories added × log n) plus a vectorised pass over the entries of each query that is added to
    (at most `max_per_query`), whatever the index holds besides."""

    def __init__(self, max_per_query: int, capacity: int) -> None:
        self._max_per_query = max_per_query
        self._capacity = capacity
        self._by_query: dict[int, EntryQueue] = {}
        # Sorted, so that a draw by rank depends on what is held and not on how it came about.
        self._queries: SortedList[int] = SortedList()
        self._recent_queries: SortedList[int] = SortedList()
        self._recent_from = 0
        self._latest_arrival: int | None = None
        # Every trajectory held is in the timeline. So are some that are not: only dropping the oldest looks there, and
        # it can tell them apart.
        self._timeline = EntryQueue(np.empty(0, _TIMELINE_DTYPE))
        self._next_sequence = 0
        self._size = 0

    def __len__(self) -> int:
        """Trajectories held."""
        return self._size

    @property
    def queries(self) -> SortedList[int]:
        """Prompt ids of which trajectories are held, ascending. Not to be changed."""
        return self._queries

    @property
    def recent_queries(self) -> SortedList[int]:
        """Those with trajectories of the latest arrival. Not to be changed."""
        return self._recent_queries

    def entries(self, prompt_id: int) -> NDArray[np.void]:
        """`[n]` of `ENTRY_DTYPE`: what is held of the query now, oldest first. A view."""
        return self._by_query[prompt_id].entries

    def recent_entries(self, prompt_id: int) -> NDArray[np.void]:
        """As `entries`, those of the latest arrival only."""
        queue = self._by_query[prompt_id]
        return queue.entries[queue.count_below(self._recent_from) :]

    def add(
        self,
        prompt_ids: NDArray[np.int64],
        hashes: NDArray[np.uint64],
        rewards: NDArray[np.float32],
        arrival: int,
    ) -> Change:
        """Adds N trajectories, `[N]` each, the last one the newest. Of duplicates the newest stays; then the oldest of
        each query go, then the oldest of all. Nothing added is no arrival: what was recent stays so."""
        first = self._next_sequence
        if len(prompt_ids) and arrival != self._latest_arrival:
            self._latest_arrival = arrival
            self._recent_from = first
            self._recent_queries.clear()
        self._next_sequence += len(prompt_ids)
        sequences = np.arange(first, self._next_sequence)
        entries = _structured(ENTRY_DTYPE, sequence=sequences, hash=hashes, reward=rewards)
        repeated = _repeated_later(prompt_ids, hashes)
        duplicates, surplus = [sequences[repeated]], [sequences[:0]]
        entries, entry_prompts = np.delete(entries, repeated), np.delete(prompt_ids, repeated)
        for prompt_id, members in _grouped(entry_prompts):
            duplicates.append(self._add_to_query(prompt_id, entries[members]))
            surplus.append(self._drop_oldest_of_query(prompt_id))
        self._timeline.append(_structured(_TIMELINE_DTYPE, sequence=sequences, prompt_id=prompt_ids))
        surplus += self._drop_oldest_of_all()
        self._clear_timeline()
        dropped = np.sort(np.concatenate(duplicates + surplus))
        old, new = np.split(dropped, [np.searchsorted(dropped, first)])
        kept = np.delete(np.arange(len(sequences)), new - first)
        return Change(kept, sequences[kept], old, sum(map(len, duplicates)), sum(map(len, surplus)))

    def sequences(self) -> NDArray[np.int64]:
        """`[N]` of all trajectories held, ascending."""
        sequences: NDArray[np.int64] = self._held()["sequence"]
        return sequences

    def state(self) -> IndexState:
        """Without a copy of the entries: O(queries)."""
        by_query = {prompt_id: queue.entries for prompt_id, queue in self._by_query.items()}
        return IndexState(by_query, self._next_sequence, self._recent_from, self._latest_arrival)

    def restore(self, state: IndexState) -> None:
        """Makes an empty index what another one was, except for the limits: these apply to what is added from now on.
        Takes the entries over."""
        assert not self._next_sequence
        self._by_query = {prompt_id: EntryQueue(entries) for prompt_id, entries in state.by_query.items()}
        self._next_sequence, self._recent_from = state.next_sequence, state.recent_from
        self._latest_arrival = state.latest_arrival
        self._queries.update(self._by_query)
        self._recent_queries.update(q for q, queue in self._by_query.items() if queue.newest >= self._recent_from)
        self._timeline = EntryQueue(self._held())
        self._size = len(self._timeline)

    def forget(self, sequences: NDArray[np.int64]) -> None:
        """Drops these trajectories, in ascending order; all must be held."""
        position = np.searchsorted(self._timeline.entries["sequence"], sequences)
        for prompt_id, members in _grouped(self._timeline.entries["prompt_id"][position]):
            queue = self._by_query[prompt_id]
            queue.keep(~_contained(queue.entries["sequence"], sequences[members]))
            self._settle(prompt_id, queue)
        self._size -= len(sequences)

    def _add_to_query(self, prompt_id: int, entries: NDArray[np.void]) -> NDArray[np.int64]:
        """Adds entries `[n]`, n > 0, of different hashes; the sequence numbers of the old ones they replace."""
        queue = self._by_query.get(prompt_id)
        if queue is None:
            queue = self._by_query[prompt_id] = EntryQueue(entries[:0])
            self._queries.add(prompt_id)
        if prompt_id not in self._recent_queries:
            self._recent_queries.add(prompt_id)
        replaced = _contained(queue.entries["hash"], np.sort(entries["hash"]))
        dropped = queue.keep(~replaced) if replaced.any() else np.empty(0, np.int64)
        queue.append(entries)
        self._size += len(entries) - len(dropped)
        return dropped

    def _drop_oldest_of_query(self, prompt_id: int) -> NDArray[np.int64]:
        """Drops what a query has beyond its share; the sequence numbers."""
        queue = self._by_query[prompt_id]
        surplus = queue.drop_oldest(max(len(queue) - self._max_per_query, 0))
        self._size -= len(surplus)
        return surplus

    def _drop_oldest_of_all(self) -> Iterator[NDArray[np.int64]]:
        """Drops what exceeds the capacity; yields the sequence numbers."""
        while (surplus := self._size - self._capacity) > 0:
            oldest = self._timeline.entries[:surplus].copy()
            self._timeline.drop_oldest(len(oldest))
            # All that a query holds up to the last of these is among them: nothing older is left in the timeline.
            for prompt_id in np.unique(oldest["prompt_id"]).tolist():
                queue = self._by_query.get(prompt_id)
                if queue is not None and (n := queue.count_below(int(oldest["sequence"][-1]) + 1)):
                    self._size -= n
                    yield queue.drop_oldest(n)
                    self._settle(prompt_id, queue)

    def _settle(self, prompt_id: int, queue: EntryQueue) -> None:
        """Corrects the sets of queries after entries of one were dropped."""
        if not len(queue):
            del self._by_query[prompt_id]
            self._queries.remove(prompt_id)
        if not len(queue) or queue.newest < self._recent_from:
            self._recent_queries.discard(prompt_id)

    def _clear_timeline(self) -> None:
        """Rebuilds the timeline once most of it is gone from the index: O(log n) for each trajectory that went."""
        if len(self._timeline) <= 2 * self._size + _TIMELINE_SLACK:
            return
        self._timeline = EntryQueue(self._held())

    def _held(self) -> NDArray[np.void]:
        """`[N]` of `_TIMELINE_DTYPE`: all trajectories held, oldest first."""
        queues = self._by_query.values()
        sequences = np.concatenate([np.empty(0, np.int64), *(queue.entries["sequence"] for queue in queues)])
        prompt_ids = np.repeat(np.fromiter(self._by_query, np.int64), [len(queue) for queue in queues])
        order = np.argsort(sequences)
        return _structured(_TIMELINE_DTYPE, sequence=sequences[order], prompt_id=prompt_ids[order])


def _structured(dtype: np.dtype[np.void], **columns: NDArray[np.generic]) -> NDArray[np.void]:
    """Columns of equal length `[n]` as one array of `dtype`."""
    result = np.empty(len(next(iter(columns.values()))), dtype)
    for name, column in columns.items():
        result[name] = column
    return result


def _grouped(keys: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Each distinct key with the ascending positions where it stands."""
    order = np.argsort(keys, kind="stable")
    cuts = np.flatnonzero(np.diff(keys[order])) + 1
    for members in np.split(order, cuts) if len(keys) else []:
        yield int(keys[members[0]]), members


def _repeated_later(prompt_ids: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Positions of those that have a later one of the same prompt and hash."""
    order = np.lexsort((hashes, prompt_ids))
    followed = (np.diff(prompt_ids[order]) == 0) & (np.diff(hashes[order]) == 0)
    repeated: NDArray[np.intp] = order[:-1][followed]
    return repeated


def _contained(values: NDArray[np.generic], ascending: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Which of `values [n]` are among `ascending [m]`, m > 0; O(n log m)."""
    position = np.searchsorted(ascending, values)
    found: NDArray[np.bool_] = ascending[np.minimum(position, len(ascending) - 1)] == values
    return found
