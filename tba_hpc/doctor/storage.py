"""The file system of a run directory, tried out in a temporary folder."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tba_hpc.doctor.finding import Finding, Level, judge

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_NODE_LOCAL = _IN_MEMORY | {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay"}
_LITTLE_SPACE, _NO_SPACE = 10e9, 1e9
_SLOW_FSYNC_SECONDS = 0.05
_FSYNCS = 5
_LARGEST_SKEW_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class FileSystem:
    """Where a path lies."""

    type: str
    mount_point: str

    @property
    def is_node_local(self) -> bool:
        """Whether nodes do not share it, unless this one serves it to the others."""
        return self.type in _NODE_LOCAL


def file_system_of(path: Path, mountinfo: str) -> FileSystem:
    """By the longest mount point above `path`, which is absolute and without links; `mountinfo` as in
    /proc/self/mountinfo. Of several mounts at one place the last one covers the others."""
    found = FileSystem("unknown", "")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        mount_point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), before.split()[4])
        if path.is_relative_to(mount_point) and len(mount_point) >= len(found.mount_point):
            found = FileSystem(after.split()[0], mount_point)
    return found


def own_file_system(run_dir: Path) -> FileSystem:
    """That of `run_dir`, or of where it would be made."""
    return file_system_of(nearest_existing(run_dir).resolve(), Path("/proc/self/mountinfo").read_text(encoding="utf-8"))


def nearest_existing(path: Path) -> Path:
    """`path`, or the nearest folder above it that exists. Absolute, links kept: they may lead elsewhere on other
    nodes."""
    absolute = path.absolute()
    return next(candidate for candidate in (absolute, *absolute.parents) if candidate.exists())


@contextmanager
def scratch_folder(run_dir: Path) -> Iterator[Path]:
    """A folder in `run_dir`, or as near above it as there is a folder; removed in the end. Raises `OSError`."""
    folder = Path(tempfile.mkdtemp(prefix=".tba-hpc-doctor-", dir=nearest_existing(run_dir)))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def storage_findings(run_dir: Path) -> Iterator[Finding]:
    """Of `run_dir` on this node alone."""
    yield type_finding(run_dir, own_file_system(run_dir))
    try:
        yield space_finding(shutil.disk_usage(nearest_existing(run_dir)).free)
        with scratch_folder(run_dir) as folder:
            yield from _trials(folder / "file")
    except OSError as error:
        advice = "choose a run_dir in a folder you may write to, with space and quota left"
        yield Finding("problem", "run_dir writable", f"no: {error.strerror or error}", advice)


def type_finding(run_dir: Path, system: FileSystem) -> Finding:
    local = ", which belongs to one node" if system.is_node_local else ""
    text = f"{run_dir.absolute()} on {system.type} mounted at {system.mount_point}{local}"
    lasting = system.type not in _IN_MEMORY
    return judge(lasting, "warning", "run_dir", text, "memory is lost with the node: choose a run_dir on storage")


def space_finding(nbytes: float) -> Finding:
    level: Level = "warning" if nbytes >= _NO_SPACE else "problem"
    advice = "delete old runs, or choose another run_dir"
    return judge(nbytes >= _LITTLE_SPACE, level, "run_dir space", f"{nbytes / 1e9:.1f} GB free", advice)


def _trials(file: Path) -> Iterator[Finding]:
    """Raises `OSError` where files cannot be written at all."""
    before = time.time()
    file.write_bytes(b"old")
    yield skew_finding(file.stat().st_mtime, before, time.time())
    yield Finding("ok", "run_dir writable", "yes")
    advice = "checkpoints could be torn: choose another file system"
    yield trial_finding("run_dir rename", lambda: _replace(file), "problem", advice)
    advice = "checkpoints copy replay segments instead: leave space for that, or choose another file system"
    yield trial_finding("run_dir links", lambda: file.with_name("link").hardlink_to(file), "warning", advice)
    advice = "runs open HDF5 files without locks; your own tools may need HDF5_USE_FILE_LOCKING=FALSE"
    yield trial_finding("run_dir locks", lambda: _lock(file), "warning", advice)
    yield fsync_finding(_fsync_seconds(file))


def trial_finding(name: str, attempt: Callable[[], object], level: Level, advice: str) -> Finding:
    """Ok if `attempt` does not raise `OSError`."""
    try:
        attempt()
    except OSError as error:
        return Finding(level, name, f"no: {error.strerror or error}", advice)
    return Finding("ok", name, "yes")


def _replace(file: Path) -> None:
    new = file.with_name("new")
    new.write_bytes(b"new")
    new.replace(file)
    if file.read_bytes() != b"new":
        raise OSError("a file that was replaced has kept its content")


def _lock(file: Path) -> None:
    with file.open("r+b") as handle:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _fsync_seconds(file: Path) -> float:
    """Median of a few."""
    times = []
    with file.open("wb", buffering=0) as handle:
        for _ in range(_FSYNCS):
            handle.write(bytes(4096))
            started = time.perf_counter()
            os.fsync(handle.fileno())
            times.append(time.perf_counter() - started)
    return statistics.median(times)


def fsync_finding(seconds: float) -> Finding:
    advice = "every replay segment and checkpoint waits for this: save less often, or choose a faster file system"
    return judge(seconds <= _SLOW_FSYNC_SECONDS, "warning", "run_dir fsync", f"{seconds * 1e3:.1f} ms", advice)


def skew_finding(mtime: float, before: float, after: float) -> Finding:
    """Of a file written between `before` and `after` by this node's clock, all in seconds since the epoch."""
    skew = abs(mtime - min(max(mtime, before), after))
    text = f"file server within {skew:.1f} s of this node"
    advice = "times of files mislead: ask the site's support about NTP"
    return judge(skew <= _LARGEST_SKEW_SECONDS, "warning", "run_dir clock", text, advice)
