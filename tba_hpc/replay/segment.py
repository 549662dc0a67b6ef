"""Trajectories on disk: HDF5 files that are written whole and never changed, and the folder that holds them.

A segment has one dataset for each array of `TrajectoryBatch`, under the same name, and one for the offsets of the
prompts and of the responses in them; `h5dump` and `h5py.File(path)` read it as it is. The first 512 bytes are an HDF5
user block with a checksum of everything behind it.

When a segment is first read, the checksum is verified before the HDF5 library sees the file, so that damage is an error
and never a crash of that library. From then on only the place of each array in the file is needed: datasets are
contiguous, so trajectories are read straight from there, at a tenth of the cost of going through HDF5.
"""

from __future__ import annotations

import errno
import os
import struct
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
import xxhash
from numpy.typing import NDArray

from tba_hpc.trajectory import ROW_DTYPE, TrajectoryBatch, offsets

DATASETS = {
    "rows": ROW_DTYPE,
    "prompt_tokens": np.dtype("<i4"),
    "response_tokens": np.dtype("<i4"),
    "behavior_logprobs": np.dtype("<f4"),
    "reference_logprobs": np.dtype("<f4"),
    "prompt_offsets": np.dtype("<i8"),
    "response_offsets": np.dtype("<i8"),
}
"""What a segment holds: attributes of `TrajectoryBatch`."""

Layout = dict[str, int]
"""Where in the file each dataset starts, in bytes."""

_MAGIC = b"TBASEG1\0"
_USER_BLOCK = struct.Struct("<8sQ496x")  # magic, XXH3-64 of the bytes behind the block
_TEMPORARY = ".tmp"
_SET_ASIDE = ".bad"
_READ_AHEAD_ROWS = 16  # rows read for nothing cost less than another read
_OUT_OF_HANDLES = (errno.EMFILE, errno.ENFILE)


class SegmentError(Exception):
    """A segment is missing, unreadable or not what was written."""


def write_segment(path: Path, batch: TrajectoryBatch) -> int:
    """Writes `batch` to `path` and returns the size of the file in bytes. The file appears complete and on stable
    storage, or not at all. Raises `OSError`."""
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        with h5py.File(temporary, "w", userblock_size=_USER_BLOCK.size, locking=False) as file:
            for name, dtype in DATASETS.items():
                file.create_dataset(name, data=getattr(batch, name), dtype=dtype, track_times=False)
        with temporary.open("r+b") as raw:
            raw.seek(_USER_BLOCK.size)
            digest = _digest(raw)
            size = raw.tell()
            raw.seek(0)
            raw.write(_USER_BLOCK.pack(_MAGIC, digest))
            raw.flush()
            os.fsync(raw.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)
    return size


def verify_segment(path: Path) -> Layout:
    """Reads the whole file once. Raises `SegmentError` unless it is a segment, byte for byte as it was written."""
    with _as_segment_error(path):
        with path.open("rb") as raw:
            user_block = raw.read(_USER_BLOCK.size)
            if user_block != _USER_BLOCK.pack(_MAGIC, _digest(raw)):
                raise SegmentError(f"{path} fails its checksum")
        with h5py.File(path, "r", locking=False) as file:
            return {name: _start(file[name], dtype) for name, dtype in DATASETS.items()}


def _start(dataset: h5py.Dataset, dtype: np.dtype[np.generic]) -> int:
    """First byte in the file; anything will do where there is nothing. Raises `ValueError` for another layout than
    `write_segment` makes."""
    start = dataset.id.get_offset()
    if dataset.dtype != dtype or (start is None and dataset.size):
        raise ValueError(f"dataset {dataset.name} is not a contiguous array of {dtype}")
    return start or 0


def _digest(raw: BinaryIO) -> int:
    """XXH3-64 of what is left in the file."""
    state = xxhash.xxh3_64()
    while chunk := raw.read(2**20):
        state.update(chunk)
    return state.intdigest()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _as_segment_error(path: Path) -> Iterator[None]:
    """What the file system, h5py and `TrajectoryBatch` raise over a bad file, as a `SegmentError`. Running out of file
    handles says nothing about the file and passes."""
    try:
        yield
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno in _OUT_OF_HANDLES:
            raise
        raise SegmentError(f"{path} cannot be read: {error}") from error


class SegmentReader:
    """An open segment."""

    def __init__(self, path: Path, layout: Layout) -> None:
        """Raises `SegmentError`."""
        self._path = path
        self._layout = layout
        with _as_segment_error(path):
            self._file = path.open("rb", buffering=0)

    def select(self, indices: NDArray[np.integer]) -> TrajectoryBatch:
        """The trajectories at `indices [M]`, M > 0, in that order; an index may repeat. Reads neighbours in one go, and
        little that was not asked for. Raises `SegmentError`."""
        wanted, inverse = np.unique(indices, return_inverse=True)
        spans = np.split(wanted, np.flatnonzero(np.diff(wanted) > _READ_AHEAD_ROWS) + 1)
        with _as_segment_error(self._path):
            parts = [self._read(int(span[0]), int(span[-1]) + 1) for span in spans]
        starts = offsets(np.array([len(part) for part in parts]))
        positions = np.concatenate([span - span[0] + start for span, start in zip(spans, starts[:-1], strict=True)])
        return TrajectoryBatch.concatenate(parts).select(positions[inverse])

    def _read(self, start: int, stop: int) -> TrajectoryBatch:
        prompt_start, prompt_stop = (self._offset("prompt_offsets", i) for i in (start, stop))
        response_start, response_stop = (self._offset("response_offsets", i) for i in (start, stop))
        return TrajectoryBatch(
            self._array("rows", start, stop),
            self._array("prompt_tokens", prompt_start, prompt_stop),
            self._array("response_tokens", response_start, response_stop),
            self._array("behavior_logprobs", response_start, response_stop),
            self._array("reference_logprobs", response_start, response_stop),
        )

    def _offset(self, name: str, index: int) -> int:
        return int(self._array(name, index, index + 1)[0])

    def _array(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Elements `start` to `stop` of a dataset. Raises `ValueError` where the file ends before."""
        dtype = DATASETS[name]
        self._file.seek(self._layout[name] + start * dtype.itemsize)
        array = np.fromfile(self._file, dtype, stop - start)
        if len(array) < stop - start:
            raise ValueError(f"{name} ends before element {stop}")
        return array

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True, eq=False)
class Segment:
    """A file in a `SegmentDirectory`."""

    path: Path
    nbytes: int
    """Size of the file."""
    layout: Layout | None = None
    """None as long as the checksum has not been verified."""


class SegmentDirectory:
    """The segments of one buffer, numbered in the order they were written, the most recently read ones open."""

    def __init__(self, path: Path, max_open: int = 32) -> None:
        """Makes the folder if it is missing, and removes what a crash in the middle of a write left behind. Raises
        `ValueError` if segments are there already."""
        path.mkdir(parents=True, exist_ok=True)
        for leftover in path.glob(f"segment-*.h5{_TEMPORARY}"):
            leftover.unlink()
        stale = sum(1 for pattern in ("segment-*.h5", f"segment-*.h5{_SET_ASIDE}") for _ in path.glob(pattern))
        if stale:
            raise ValueError(
                f"{path} holds {stale} replay segments of an earlier run; remove that directory or choose another one"
            )
        self._path = path
        self._max_open = max_open
        self._readers: OrderedDict[Path, SegmentReader] = OrderedDict()
        self._next_number = 0

    def write(self, batch: TrajectoryBatch) -> Segment:
        """Raises `OSError`."""
        path = self._path / f"segment-{self._next_number:08d}.h5"
        self._next_number += 1
        return Segment(path, write_segment(path, batch))

    def select(self, segment: Segment, indices: NDArray[np.integer]) -> TrajectoryBatch:
        """The trajectories at `indices [M]` of the segment, in that order. Raises `SegmentError`."""
        return self._reader(segment).select(indices)

    def _reader(self, segment: Segment) -> SegmentReader:
        reader = self._readers.get(segment.path)
        if reader is None:
            if segment.layout is None:
                segment.layout = verify_segment(segment.path)
            while len(self._readers) >= self._max_open:
                self._readers.popitem(last=False)[1].close()
            reader = self._readers[segment.path] = SegmentReader(segment.path, segment.layout)
        self._readers.move_to_end(segment.path)
        return reader

    def remove(self, segment: Segment) -> None:
        self._close(segment)
        segment.path.unlink(missing_ok=True)

    def set_aside(self, segment: Segment) -> None:
        """Renames a bad segment, so that nothing reads it again and someone can look into it."""
        self._close(segment)
        if segment.path.exists():
            segment.path.rename(segment.path.with_name(segment.path.name + _SET_ASIDE))

    def _close(self, segment: Segment) -> None:
        reader = self._readers.pop(segment.path, None)
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """Closes all files; a later `select` opens them again."""
        while self._readers:
            self._readers.popitem()[1].close()
