"""Who is who: splits COMM_WORLD into trainers and searchers and binds each rank to its device.

Ranks 0 … T − 1 train, the rest search. Rank 0 is trainer 0: it owns the replay buffer and leads every exchange.
"""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from mpi4py import MPI
from numpy.typing import NDArray

from tba_hpc.config import RunConfig
from tba_hpc.distributed.waiting import wait_until
from tba_hpc.settings import ConfigError

Role = Literal["trainer", "searcher"]
LEADER = 0
"""Rank of trainer 0 in COMM_WORLD, and in the exchange communicator."""
_DONE_TAG = 8


@dataclass(frozen=True, slots=True)
class World:
    """This rank's place in the run."""

    comm: MPI.Intracomm
    """All ranks; used at start-up and at the very end only."""
    exchange: MPI.Intracomm | None
    """Trainer 0 (rank 0) and the searchers (rank 1 + index); None on the other trainers."""
    trainers: MPI.Intracomm | None
    """The trainers; None on searchers."""
    role: Role
    index: int
    """Number of this rank within its role."""
    n_trainers: int
    n_searchers: int
    host: str
    """Address under which this rank's node can be reached from the others."""
    device: torch.device

    @property
    def is_leader(self) -> bool:
        return self.comm.rank == LEADER

    @property
    def name(self) -> str:
        return f"{self.role} {self.index} (rank {self.comm.rank})"


def build_world(comm: MPI.Intracomm, config: RunConfig) -> World:
    """Collective over `comm`. Raises `ConfigError` for a world that cannot run `config`."""
    config.check_world(comm.size)
    n_trainers = config.distributed.trainers
    trains = comm.rank < n_trainers
    in_exchange = comm.rank == LEADER or not trains
    exchange = comm.Split(0 if in_exchange else MPI.UNDEFINED, comm.rank)
    trainers = comm.Split(0 if trains else MPI.UNDEFINED, comm.rank)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    single_node = node.size == comm.size
    world = World(
        comm=comm,
        exchange=cast(MPI.Intracomm, exchange) if in_exchange else None,
        trainers=cast(MPI.Intracomm, trainers) if trains else None,
        role="trainer" if trains else "searcher",
        index=comm.rank if trains else comm.rank - n_trainers,
        n_trainers=n_trainers,
        n_searchers=comm.size - n_trainers,
        host="127.0.0.1" if single_node else own_address(),
        device=_bind_device(comm, node),
    )
    node.Free()
    return world


def own_address() -> str:
    """The address other nodes reach this one under: its host name's, or where that is only the loopback, the address
    of the interface with the default route."""
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        address = "127.0.0.1"
    if not address.startswith("127."):
        return address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a datagram socket sends nothing on connect
            return str(probe.getsockname()[0])
        except OSError:
            return address


def use_device(device: torch.device) -> None:
    """Makes a GPU the calling thread's current one: CUDA keeps that by thread, and a new thread starts with GPU 0."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def _bind_device(comm: MPI.Comm, node: MPI.Comm) -> torch.device:
    """A GPU for every rank, or none for any. The collectives in here are the same whatever a rank sees of its node."""
    threads = _fair_threads(node)
    sees_gpu = _allgather(comm, int(torch.cuda.is_available())).astype(bool)
    if sees_gpu.all():
        return _bind_gpu(comm, node)
    if sees_gpu.any():
        raise ConfigError(
            f"ranks {np.flatnonzero(sees_gpu).tolist()} see a GPU and ranks {np.flatnonzero(~sees_gpu).tolist()} do "
            "not, but weights travel between GPUs or between CPUs: give every rank a GPU, or set "
            "CUDA_VISIBLE_DEVICES= (empty) for all of them to run on CPUs"
        )
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)
    return torch.device("cpu")


def _fair_threads(node: MPI.Comm) -> int:
    """Cores this rank may use over the ranks of its node that may use the same ones."""
    cores = sorted(os.sched_getaffinity(0))
    return max(1, len(cores) // len(_ranks_with_same(node, str(cores))))


def _bind_gpu(comm: MPI.Comm, node: MPI.Comm) -> torch.device:
    """One GPU a rank: the only one visible, or the one numbered as the rank on its node."""
    count = torch.cuda.device_count()
    index = node.rank if count >= node.size else node.rank % count
    identity = str(torch.cuda.get_device_properties(index).uuid)
    shared_by = _ranks_with_same(comm, identity)
    if len(shared_by) > 1:
        raise ConfigError(
            f"ranks {shared_by} on {socket.gethostname()} share GPU {identity}, which NCCL cannot serve: give each "
            f"rank a GPU of its own (rank {comm.rank} sees {count}, and {node.size} ranks run on its node), or set "
            " CUDA_VISIBLE_DEVICES= (empty) for all ranks to run on CPUs"
        )
    device = torch.device("cuda", index)
    use_device(device)
    return device


def _ranks_with_same(comm: MPI.Comm, text: str) -> list[int]:
    """The ranks, this one among them, that call with the same text."""
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)
    ranks: list[int] = np.flatnonzero(_allgather(comm, digest) == digest).tolist()
    return ranks


def _allgather(comm: MPI.Comm, value: int) -> NDArray[np.int64]:
    """The value of every rank, `[size]`."""
    gathered = np.empty(comm.size, np.int64)
    comm.Allgather(np.array([value], np.int64), gathered)
    return gathered


def broadcast_text(comm: MPI.Intracomm, text: str | None, seconds: float) -> str:
    """`text` of rank 0 on every rank, as typed bytes. For start-up, when only the main thread calls MPI. Raises
    `TimeoutError` where rank 0 does not come within `seconds`, and on rank 0 where others keep it that long."""
    problem = "not every rank has taken what trainer 0 sends" if comm.rank == LEADER else "still nothing from trainer 0"

    def broadcast(buffer: NDArray[Any]) -> None:
        if not wait_until(comm.Ibcast(buffer, LEADER).Test, seconds):
            raise TimeoutError(f"start-up: after {seconds:.0f} s {problem}")

    data = np.frombuffer((text or "").encode(), np.uint8)
    size = np.array([len(data)], np.int64)
    broadcast(size)
    buffer = data.copy() if comm.rank == LEADER else np.empty(int(size[0]), np.uint8)
    broadcast(buffer)
    return buffer.tobytes().decode()


def finish_together(world: World, seconds: float) -> None:
    """Waits, without spinning a core as MPI_Finalize would, until every rank is done. Raises `TimeoutError`; that of
    trainer 0 names the ranks that are not."""
    comm, token = world.comm, np.zeros(1, np.int8)
    if world.is_leader:
        reports = [comm.Irecv(np.zeros(1, np.int8), rank, _DONE_TAG) for rank in range(1, comm.size)]
        if not wait_until(lambda: MPI.Request.Testall(reports), seconds, longest_pause=0.02):
            late = ", ".join(f"rank {rank}" for rank, report in enumerate(reports, start=1) if not report.Test())
            raise TimeoutError(f"at the end of the run, after {seconds:.0f} s, still at work: {late}")
        release = comm.Ibarrier()
    else:
        report, release = comm.Isend(token, LEADER, _DONE_TAG), comm.Ibarrier()
        reports = [report]
    if not wait_until(lambda: MPI.Request.Testall([*reports, release]), seconds, longest_pause=0.02):
        raise TimeoutError(f"{world.name} is done, but trainer 0 was not within {seconds:.0f} s")
