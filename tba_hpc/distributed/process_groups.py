"""torch.distributed groups beside the default one, which belongs to DeepSpeed or vLLM."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed import PrefixStore, ProcessGroup, Store, TCPStore

from tba_hpc.distributed.world import LEADER, broadcast_text


def open_store(comm: MPI.Intracomm, host: str, seconds: float) -> Store:
    """A store that rank 0 of `comm` serves under `host`, on a port that is free at run time, so that runs on one node
    do not collide; the others hear of it over MPI. Collective."""
    timeout = timedelta(seconds=seconds)
    if comm.rank == LEADER:
        store = TCPStore(host, 0, comm.size, is_master=True, wait_for_workers=False, timeout=timeout)
        broadcast_text(comm, f"{host} {store.port}", seconds)
        return store
    host, port = broadcast_text(comm, None, seconds).split()
    return TCPStore(host, int(port), comm.size, is_master=False, wait_for_workers=False, timeout=timeout)


def make_group(
    store: Store, name: str, comm: MPI.Intracomm, host: str, device: torch.device, seconds: float
) -> ProcessGroup:
    """A group of the ranks of `comm`, numbered alike: NCCL if `device` is a GPU, Gloo for a CPU, which listens at this
    rank's address `host`. No operation of it takes longer than `seconds`."""
    prefixed, timeout = PrefixStore(name, store), timedelta(seconds=seconds)
    if device.type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return cast(ProcessGroup, dist.ProcessGroupNCCL(prefixed, comm.rank, comm.size, options))
    gloo = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    gloo._timeout = timeout
    # Left to itself it resolves the host name, which on many a node leads to the loopback.
    gloo._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
    return cast(ProcessGroup, dist.ProcessGroupGloo(prefixed, comm.rank, comm.size, gloo))
