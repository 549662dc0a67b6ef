"""TrajectoryBatch ↔ bytes: a header, then the batch's arrays as they are in memory, little-endian, each section
aligned to 8 bytes. Unpacking copies nothing and trusts nothing: sizes, magic and checksum are verified first."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tba_hpc.trajectory import ROW_DTYPE, TrajectoryBatch

HEADER = np.dtype(
    [
        ("magic", "S4"),
        ("checksum", "<u4"),  # CRC-32 of everything behind it
        ("rows", "<i8"),
        ("prompt_tokens", "<i8"),
        ("response_tokens", "<i8"),
    ]
)
MAGIC = b"TBA1"
_AFTER_CHECKSUM = 8


class CodecError(ValueError):
    """The bytes are not a packed TrajectoryBatch, or were damaged on their way."""


def _sections(n_rows: int, n_prompt: int, n_response: int) -> list[tuple[np.dtype[Any], int, int]]:
    """(dtype, count, byte offset) of each array, then the end as a last entry of zero bytes."""
    start = HEADER.itemsize
    result: list[tuple[np.dtype[Any], int, int]] = []
    int32, float32 = np.dtype("<i4"), np.dtype("<f4")
    for dtype, count in (
        (ROW_DTYPE, n_rows),
        (int32, n_prompt),
        (int32, n_response),
        (float32, n_response),
        (float32, n_response),
    ):
        result.append((dtype, count, start))
        start += -(-dtype.itemsize * count // 8) * 8
    result.append((np.dtype("u1"), 0, start))
    return result


def _checksum(packed: NDArray[np.uint8]) -> int:
    return zlib.crc32(packed[_AFTER_CHECKSUM:].data)


def pack(batch: TrajectoryBatch) -> NDArray[np.uint8]:
    """The batch as bytes `[n]`. An empty batch packs into a header alone."""
    *sections, (_, _, size) = _sections(len(batch), len(batch.prompt_tokens), len(batch.response_tokens))
    packed = np.zeros(size, np.uint8)
    arrays = (
        batch.rows,
        batch.prompt_tokens,
        batch.response_tokens,
        batch.behavior_logprobs,
        batch.reference_logprobs,
    )
    for (dtype, count, start), array in zip(sections, arrays, strict=True):
        packed[start : start + dtype.itemsize * count].view(dtype)[:] = array
    header = packed[: HEADER.itemsize].view(HEADER)[0]
    header["magic"] = MAGIC
    header["rows"] = len(batch)
    header["prompt_tokens"] = len(batch.prompt_tokens)
    header["response_tokens"] = len(batch.response_tokens)
    header["checksum"] = _checksum(packed)
    return packed


def unpack(data: NDArray[np.uint8]) -> TrajectoryBatch:
    """The batch in `data [n]`, as views into it. Raises `CodecError`."""
    if len(data) < HEADER.itemsize:
        raise CodecError(f"{len(data)} bytes are too few for a header of {HEADER.itemsize}")
    header = data[: HEADER.itemsize].view(HEADER)[0]
    if header["magic"] != MAGIC:
        raise CodecError(f"starts with {bytes(header['magic'])!r}, not {MAGIC!r}")
    counts = [int(header[name]) for name in ("rows", "prompt_tokens", "response_tokens")]
    if min(counts) < 0:
        raise CodecError(f"negative sizes {counts}")
    *sections, (_, _, size) = _sections(*counts)
    if len(data) != size:
        raise CodecError(f"{len(data)} bytes where the header announces {size}")
    checksum = _checksum(data)
    if checksum != header["checksum"]:
        raise CodecError(f"checksum {checksum:08x} where the sender computed {int(header['checksum']):08x}")
    arrays = [data[start : start + dtype.itemsize * count].view(dtype) for dtype, count, start in sections]
    try:
        return TrajectoryBatch(*arrays)
    except ValueError as error:
        raise CodecError(str(error)) from error
