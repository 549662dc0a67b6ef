"""What this node gives to a rank: cores, memory, open files."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from tba_hpc.doctor.finding import Finding, judge

_FEWEST_OPEN_FILES = 4096
_SMALLEST_SHM = 2**30


def node_findings() -> Iterator[Finding]:
    yield Finding("ok", "cores", f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} for this process")
    yield memory_finding(Path("/proc/meminfo").read_text())
    shm = os.statvfs("/dev/shm")
    yield shm_finding(shm.f_blocks * shm.f_frsize)
    yield open_files_finding(*resource.getrlimit(resource.RLIMIT_NOFILE))


def memory_finding(meminfo: str) -> Finding:
    """`meminfo` as in /proc/meminfo."""
    kib = {line.split(":")[0]: int(line.split()[1]) for line in meminfo.splitlines() if ":" in line}
    total, free = (kib[name] / 2**20 for name in ("MemTotal", "MemAvailable"))
    return Finding("ok", "memory", f"{total:.0f} GiB on this node, {free:.0f} GiB of it available")


def shm_finding(nbytes: int) -> Finding:
    advice = "MPI and NCCL exchange data there: in a container give it more (--shm-size=8g, or --ipc=host)"
    return judge(nbytes >= _SMALLEST_SHM, "warning", "/dev/shm", f"{nbytes / 2**30:.1f} GiB", advice)


def open_files_finding(soft: int, hard: int) -> Finding:
    """Limits as of `getrlimit`."""
    unlimited = resource.RLIM_INFINITY
    possible = hard == unlimited or hard >= _FEWEST_OPEN_FILES
    advice = f"ulimit -n {_FEWEST_OPEN_FILES}" if possible else "ask the site's support to raise the hard limit"
    text = "unlimited" if soft == unlimited else f"at most {soft}"
    return judge(soft == unlimited or soft >= _FEWEST_OPEN_FILES, "warning", "open files", text, advice)
