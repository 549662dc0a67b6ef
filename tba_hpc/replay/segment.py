"""Trajectories on disk: files that are written whole and never changed, and the folder that holds them.

A segment is an HDF5 file with one dataset for each array of `TrajectoryBatch`, under the same name, and one for the
offsets of the prompts and of the responses in them.

When a segment is first read, the checksum is verified before the HDF5 library sees the file, so that damage is an error
and never a crash of that library. From then on only the place of each array in the file is needed: datasets are
contiguous, so trajectories are read straight from there, at a tenth of the cost of going through HDF5.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from tba_hpc.replay.files import TEMPORARY, is_intact, link_or_copy, write_arrays
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

_SET_ASIDE = ".bad"
_READ_AHEAD_ROWS = 16  # rows read for nothing cost less than another read
_OUT_OF_HANDLES = (errno.EMFILE, errno.ENFILE)


class SegmentError(Exception):
    """A segment is missing, unreadable or not what was written."""


def write_segment(path: Path, batch: TrajectoryBatch) -> int:
    """Writes `batch` to `path` and returns the size of the file in bytes. The file appears complete and on stable
    storage, or not at all. Raises `OSError`."""
    return write_arrays(
        path, {name: getattr(batch, name).astype(dtype, copy=False) for name, dtype in DATASETS.items()}
    )


def read_segment(path: Path) -> TrajectoryBatch:
    """All of a segment. Raises `SegmentError` unless it is byte for byte as it was written."""
    with _open_verified(path) as file:
        return TrajectoryBatch(**{field.name: file[field.name][:] for field in fields(TrajectoryBatch)})


def verify_segment(path: Path) -> Layout:
    """Reads the whole file once. Raises `SegmentError` unless it is a segment, byte for byte as it was written."""
    with _open_verified(path) as file:
        return {name: _start(file[name], dtype) for name, dtype in DATASETS.items()}


@contextmanager
def _open_verified(path: Path) -> Iterator[h5py.File]:
    """The file, once its checksum has been verified. Raises `SegmentError`, also for what goes wrong inside."""
    with _as_segment_error(path):
        if not is_intact(path):
            raise SegmentError(f"{path} fails its checksum")
        with h5py.File(path, "r", locking=False) as file:
            yield file


def _start(dataset: h5py.Dataset, dtype: np.dtype[np.generic]) -> int:
    """First byte in the file; anything will do where there is nothing. Raises `ValueError` for another layout than
    `write_segment` makes."""
    start = dataset.id.get_offset()
    if dataset.dtype != dtype or (start is None and dataset.size):
        raise ValueError(f"dataset {dataset.name} is not a contiguous array of {dtype}")
    return start or 0


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

    number: int
    """Higher than that of any written before."""
    path: Path
    nbytes: int
    """Size of the file."""
    layout: Layout | None = None
    """None as long as the checksum has not been verified."""


def segment_name(number: int) -> str:
    return f"segment-{number:08d}.h5"


class SegmentDirectory:
    """The segments of one buffer, numbered in the order they were written, the most recently read ones open."""

    def __init__(self, path: Path, max_open: int = 32) -> None:
        """Makes the folder if it is missing, and removes what a crash in the middle of a write left behind. Raises
        `ValueError` if segments are there already."""
        path.mkdir(parents=True, exist_ok=True)
        for leftover in path.glob(f"segment-*.h5{TEMPORARY}"):
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
        self._held: frozenset[Path] | None = None
        self._deferred: dict[Path, Callable[[Path], None]] = {}

    def write(self, batch: TrajectoryBatch) -> Segment:
        """Raises `OSError`."""
        number = self._next_number
        self._next_number += 1
        path = self._path / segment_name(number)
        return Segment(number, path, write_segment(path, batch))

    def adopt(self, folder: Path, number: int) -> Segment:
        """Takes in a segment of another folder, which keeps it too. Raises `OSError`."""
        self._next_number = max(self._next_number, number + 1)
        path = self._path / segment_name(number)
        link_or_copy(folder / segment_name(number), path)
        return Segment(number, path, path.stat().st_size)

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
        self._dispose(segment, _delete)

    def set_aside(self, segment: Segment) -> None:
        """Renames a bad segment, so that nothing reads it again and someone can look into it."""
        self._dispose(segment, _rename)

    def _dispose(self, segment: Segment, how: Callable[[Path], None]) -> None:
        self._close(segment)
        if self._held is not None and segment.path in self._held:
            self._deferred.setdefault(segment.path, how)  # a bad one is set aside first, and then removed too
        else:
            how(segment.path)

    def hold(self, segments: Iterable[Segment]) -> None:
        """Until `release`, the files of these segments stay where they are, whatever becomes of the segments."""
        assert self._held is None, "segments are held already"
        self._held = frozenset(segment.path for segment in segments)

    def release(self) -> None:
        """Does what `hold` has put off. Raises `OSError`."""
        self._held = None
        while self._deferred:
            path, how = self._deferred.popitem()
            how(path)

    def _close(self, segment: Segment) -> None:
        reader = self._readers.pop(segment.path, None)
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """Closes all files; a later `select` opens them again."""
        while self._readers:
            self._readers.popitem()[1].close()


def _delete(path: Path) -> None:
    path.unlink(missing_ok=True)


def _rename(path: Path) -> None:
    if path.exists():
        path.rename(path.with_name(path.name + _SET_ASIDE))
