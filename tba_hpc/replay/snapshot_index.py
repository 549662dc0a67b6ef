"""The file `index.h5` of a snapshot: everything about a replay buffer but the tokens."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from tba_hpc.replay.files import is_intact, write_arrays
from tba_hpc.replay.index import ENTRY_DTYPE

INDEX_NAME = "index.h5"

SEGMENT_DTYPE = np.dtype(
    [
        ("number", "<i8"),  # of its name
        ("rows", "<i4"),  # trajectories in it, dead ones included
        ("nbytes", "<i8"),  # of these trajectories
        ("file_bytes", "<i8"),
    ]
)
_NONE = np.iinfo(np.int64).min  # where there is no number


@dataclass(frozen=True, slots=True)
class Counters:
    """The single numbers of a buffer."""

    next_sequence: int
    recent_from: int
    """First sequence number of the latest arrival that delivered anything."""
    latest_delivery: int | None
    """That arrival."""
    latest_arrival: int | None
    """The latest of all."""
    added: int
    """Trajectories that were told apart by counting them."""
    duplicates: int
    evicted: int
    lost: int

    def pack(self) -> NDArray[np.void]:
        """`[1]` of `COUNTERS_DTYPE`"""
        return np.array([tuple(_NONE if value is None else value for value in astuple(self))], COUNTERS_DTYPE)

    @classmethod
    def unpack(cls, packed: NDArray[np.void]) -> Counters:
        values: list[Any] = [None if value == _NONE else value for value in packed[0].tolist()]
        return cls(*values)


COUNTERS_DTYPE = np.dtype([(field.name, "<i8") for field in fields(Counters)])
_DTYPES = {
    "counters": COUNTERS_DTYPE,
    "queries": np.dtype("<i8"),
    "query_sizes": np.dtype("<i4"),
    "entries": ENTRY_DTYPE,
    "segments": SEGMENT_DTYPE,
    "segment_sequences": np.dtype("<i8"),
    "segment_sizes": np.dtype("<u4"),
    "ram_rows": np.dtype("<i4"),
    "ram_sequences": np.dtype("<i8"),
}


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotIndex:
    """Q queries with N trajectories, of which R are in F files of those that were in RAM. S segments with D
    trajectories, dead ones included."""

    counters: NDArray[np.void]
    """`[1]` of `COUNTERS_DTYPE`"""
    queries: NDArray[np.int64]
    """`[Q]` prompt ids"""
    query_sizes: NDArray[np.int32]
    """`[Q]` trajectories of each"""
    entries: NDArray[np.void]
    """`[N]` of `ENTRY_DTYPE`, query by query, oldest first"""
    segments: NDArray[np.void]
    """`[S]` of `SEGMENT_DTYPE`, oldest first"""
    segment_sequences: NDArray[np.int64]
    """`[D]` segment by segment, ascending"""
    segment_sizes: NDArray[np.uint32]
    """`[D]` in bytes, zero for the dead"""
    ram_rows: NDArray[np.int32]
    """`[F]` trajectories in each file"""
    ram_sequences: NDArray[np.int64]
    """`[R]` file by file, ascending"""

    def __post_init__(self) -> None:
        """Raises `ValueError` where the arrays contradict each other: they come from disk too."""
        for name, dtype in _DTYPES.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.ndim != 1:
                raise ValueError(f"{name} is {array.dtype} {list(array.shape)}, not a list of {dtype}")
        if len(self.counters) != 1:
            raise ValueError(f"there are {len(self.counters)} sets of counters")
        if len(self.queries) != len(self.query_sizes):
            raise ValueError(f"there are {len(self.queries)} queries and {len(self.query_sizes)} sizes of queries")
        _check_numbers("queries", self.queries)
        _check_numbers("segments", self.segments["number"])
        _check_parts("queries", self.query_sizes, self.entries)
        _check_parts("segments", self.segments["rows"], self.segment_sequences, self.segment_sizes)
        _check_parts("files of what was in RAM", self.ram_rows, self.ram_sequences)
        self._check_sequences()

    def _check_sequences(self) -> None:
        """What the index has must be what is stored."""
        stored = np.concatenate([self.segment_sequences, self.ram_sequences])
        bounded = np.concatenate([[-1], stored, self.counters["next_sequence"]])
        if (np.diff(bounded) <= 0).any():
            raise ValueError("sequence numbers of stored trajectories are out of order")
        live = np.concatenate([self.segment_sequences[self.segment_sizes > 0], self.ram_sequences])
        if not np.array_equal(np.sort(self.entries["sequence"]), live):
            raise ValueError("the trajectories of the queries are not those that are stored")
        descents = np.flatnonzero(np.diff(self.entries["sequence"]) < 0) + 1
        if not np.isin(descents, np.cumsum(self.query_sizes)).all():
            raise ValueError("the trajectories of a query are out of order")

    def write(self, path: Path) -> None:
        """Raises `OSError`."""
        write_arrays(path, {name: getattr(self, name) for name in _DTYPES})

    @classmethod
    def read(cls, path: Path) -> SnapshotIndex:
        """Raises `OSError`, `KeyError` or `ValueError` if the file is missing, damaged or another one."""
        if not is_intact(path):
            raise ValueError("it fails its checksum")
        with h5py.File(path, "r", locking=False) as file:
            return cls(**{name: np.asarray(file[name]) for name in _DTYPES})


def _check_parts(what: str, sizes: NDArray[np.integer], *wholes: NDArray[Any]) -> None:
    """That parts of these sizes, none empty, make up each of the wholes."""
    if (sizes < 1).any() or any(len(whole) != sizes.sum() for whole in wholes):
        raise ValueError(f"{what} of {sizes.sum()} trajectories do not make up {list(map(len, wholes))}")


def _check_numbers(what: str, numbers: NDArray[np.int64]) -> None:
    if len(np.unique(numbers)) < len(numbers):
        raise ValueError(f"{what} come twice")
