"""What the ranks find out together: `python -m tba_hpc.doctor.ranks RUN_DIR < REPORT`.

Run by each of them it becomes an MPI rank in its stead, passes on what it reads and prints a `World` in JSON; so an MPI
that aborts or hangs takes only this process with it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
from mpi4py import MPI

from tba_hpc.distributed.launcher import check_launcher
from tba_hpc.distributed.waiting import wait_until
from tba_hpc.doctor.storage import scratch_folder
from tba_hpc.doctor.world import World
from tba_hpc.settings import ConfigError

_FIRST_SECONDS = 180.0  # ranks come here after checks of their own
_SECONDS = 30.0
_VISIBLE_SECONDS = 15.0
_PATH_BYTES = 8192
_REPORT_TAG, _CLOCK_TAG = 1, 2
_CLOCK_READINGS = 3


def _meet(comm: MPI.Intracomm, report: bytes, run_dir: Path) -> World:
    """Collective. Raises `TimeoutError`."""
    return World(
        rank=comm.rank,
        size=comm.size,
        library=" ".join(MPI.Get_library_version().splitlines()[0].split()),
        refusal=_refusal(comm),
        reports=[text.decode() for text in _gather(comm, report, _FIRST_SECONDS)],
        seen=_who_sees(comm, run_dir),
        clocks=_clocks(comm),
    )


def _refusal(comm: MPI.Intracomm) -> str:
    try:
        check_launcher(comm.size, MPI.Query_thread(), os.environ)
    except ConfigError as error:
        return str(error)
    return ""


def _gather(comm: MPI.Intracomm, data: bytes, seconds: float) -> list[bytes]:
    """On rank 0 the data of every rank, by rank; elsewhere nothing. Raises `TimeoutError`, which on rank 0 names those
    that did not come."""
    if comm.rank > 0:
        _finish(comm.Isend(np.frombuffer(data, np.uint8), 0, _REPORT_TAG).Test, seconds, "rank 0")
        return []
    found, status = {0: data}, MPI.Status()

    def all_came() -> bool:
        while comm.Iprobe(MPI.ANY_SOURCE, _REPORT_TAG, status):
            buffer, source = np.empty(status.Get_count(MPI.BYTE), np.uint8), status.Get_source()
            comm.Recv(buffer, source, _REPORT_TAG)
            found[source] = buffer.tobytes()
        return len(found) == comm.size

    if not wait_until(all_came, seconds):
        missing = ", ".join(str(rank) for rank in range(comm.size) if rank not in found)
        raise TimeoutError(f"nothing from rank {missing} within {seconds:.0f} s")
    return [found[rank] for rank in range(comm.size)]


def _who_sees(comm: MPI.Intracomm, run_dir: Path) -> list[bool]:
    """On rank 0, whether each rank sees a file that rank 0 wrote and can write one beside it; nothing elsewhere, and
    where rank 0 cannot write."""
    with ExitStack() as stack:
        path = ""
        if comm.rank == 0:
            with suppress(OSError):
                folder = stack.enter_context(scratch_folder(run_dir))
                (folder / "seen").write_text(folder.name, encoding="utf-8")
                path = str(folder)
        path = _broadcast_path(comm, path)
        answers = _gather(comm, bytes([bool(path) and _sees(Path(path), comm.rank)]), _SECONDS + _VISIBLE_SECONDS)
    return [bool(answer[0]) for answer in answers] if path else []


def _sees(folder: Path, rank: int) -> bool:
    def works() -> bool:
        with suppress(OSError):
            if (folder / "seen").read_text(encoding="utf-8") == folder.name:
                (folder / f"rank_{rank}").touch()
                return True
        return False

    return wait_until(works, _VISIBLE_SECONDS, longest_pause=0.2)


def _broadcast_path(comm: MPI.Intracomm, path: str) -> str:
    buffer = np.frombuffer(os.fsencode(path).ljust(_PATH_BYTES, b"\0"), np.uint8).copy()
    # Rank 0 may just have begun to wait for the last of the others.
    _finish(comm.Ibcast(buffer, 0).Test, _FIRST_SECONDS + _SECONDS, "rank 0")
    return os.fsdecode(buffer.tobytes().rstrip(b"\0"))


def _clocks(comm: MPI.Intracomm) -> list[float]:
    """On rank 0, by how many seconds each rank's clock is ahead of its own, from the quickest of a few answers; nothing
    elsewhere."""
    if comm.rank == 0:
        return [0.0, *(min(_reading(comm, rank) for _ in range(_CLOCK_READINGS))[1] for rank in range(1, comm.size))]
    for _ in range(_CLOCK_READINGS):
        _finish(comm.Irecv(np.zeros(1), 0, _CLOCK_TAG).Test, _SECONDS + comm.size, "rank 0")
        _finish(comm.Isend(np.array([time.time()]), 0, _CLOCK_TAG).Test, _SECONDS, "rank 0")
    return []


def _reading(comm: MPI.Intracomm, rank: int) -> tuple[float, float]:
    """Round trip, and how far the rank's clock is ahead halfway through it, in seconds."""
    answer, started = np.zeros(1), time.time()
    requests = [comm.Isend(np.zeros(1), rank, _CLOCK_TAG), comm.Irecv(answer, rank, _CLOCK_TAG)]
    _finish(lambda: MPI.Request.Testall(requests), _SECONDS, f"rank {rank}")
    ended = time.time()
    return ended - started, float(answer[0]) - (started + ended) / 2


def _finish(done: Callable[[], bool], seconds: float, whom: str) -> None:
    if not wait_until(done, seconds):
        raise TimeoutError(f"nothing from {whom} within {seconds:.0f} s")


if __name__ == "__main__":
    try:
        world = _meet(MPI.COMM_WORLD, sys.stdin.buffer.read(), Path(sys.argv[1]))
    except TimeoutError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(1)  # MPI_Finalize would wait for those that did not come
    print(json.dumps(asdict(world)), flush=True)  # noqa: T201
