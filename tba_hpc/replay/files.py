"""Files of arrays that vouch for their content, and are on stable storage once they are there.

They are HDF5 files that `h5dump` and `h5py.File(path)` read as they are. The first 512 bytes are an HDF5 user block
with a checksum of everything behind it.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import xxhash
from numpy.typing import NDArray

from tba_hpc.stable_storage import sync

TEMPORARY = ".tmp"
"""Ending of the name that a file has while it is being written."""

_MAGIC = b"TBASEG1\0"
_USER_BLOCK = struct.Struct("<8sQ496x")  # magic, XXH3-64 of the bytes behind the block
_NO_HARD_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS)


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> int:
    """Writes a dataset for each array, contiguous, and returns the size of the file in bytes. The file appears complete
    and on stable storage, or not at all. Raises `OSError`."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with h5py.File(temporary, "w", userblock_size=_USER_BLOCK.size, locking=False) as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, track_times=False)
        with temporary.open("r+b") as raw:
            raw.seek(_USER_BLOCK.size)
            digest = _digest(raw)
            size = raw.tell()
            raw.seek(0)
            raw.write(_USER_BLOCK.pack(_MAGIC, digest))
            raw.flush()
            os.fsync(raw.fileno())
        temporary.rename(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, RuntimeError):  # what h5py makes of a full disk when it closes the file
            raise OSError(f"{path} cannot be written: {error}") from error
        raise
    sync(path.parent)
    return size


def is_intact(path: Path) -> bool:
    """Whether the file is one of `write_arrays`, byte for byte as it was written; reads all of it. Raises `OSError`."""
    with path.open("rb") as raw:
        user_block = raw.read(_USER_BLOCK.size)
        return user_block == _USER_BLOCK.pack(_MAGIC, _digest(raw))


def _digest(raw: BinaryIO) -> int:
    """XXH3-64 of what is left in the file."""
    state = xxhash.xxh3_64()
    while chunk := raw.read(2**20):
        state.update(chunk)
    return state.intdigest()


def link_or_copy(source: Path, target: Path) -> None:
    """Makes `target` another name of a file that is on stable storage and will not change, or a copy on stable storage
    where the file system has no such names. The new name is on stable storage once its folder is synced. Raises
    `OSError`, also if `target` exists."""
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno not in _NO_HARD_LINK:
            raise
        with source.open("rb") as old, target.open("xb") as new:
            shutil.copyfileobj(old, new, 2**20)
            new.flush()
            os.fsync(new.fileno())
