"""torch.distributed groups beside the default one, which belongs to DeepSpeed or vLLM."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed import PrefixStore, ProcessGroup, Store, TCPStore

from tba_hpc.distributed.waiting import wait_until
from tba_hpc.distributed.world import LEADER, broadcast_text, use_device


def open_store(comm: MPI.Intracomm, host: str, seconds: float) -> Store:
    """A store that rank 0 of `comm` serves under `host`, on a port that is free at run time, so that runs on one node
    do not collide; the others hear of it over MPI. Groups made with it come about within `seconds`. Collective."""
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
    rank's address `host`. No operation of it takes longer than `seconds`.

    Collective; returns once a first broadcast has gone through, and raises `TimeoutError`, naming the ranks that are
    not there, where that takes longer than the store's own bound."""
    start_up: float = store.timeout.total_seconds()  # type: ignore[attr-defined]
    prefixed = PrefixStore(name, store)
    _meet(prefixed, name, comm, start_up)
    made: Future[ProcessGroup] = Future()

    def connect() -> None:
        try:
            use_device(device)
            group = _new_group(prefixed, comm, host, device, timedelta(seconds=seconds))
            _first_broadcast(group, device)
            made.set_result(group)
        except BaseException as error:
            made.set_exception(error)

    # A thread, since NCCL connects inside its first operation, in a call that has no bound of its own.
    threading.Thread(target=connect, name=f"connect {name}", daemon=True).start()
    try:
        return made.result(start_up)
    except TimeoutError as error:
        raise TimeoutError(
            f"start-up: every rank has come to group {name!r}, but after {start_up:.0f} s they are not connected: "
            "look at the network between them"
        ) from error


def close_group(group: ProcessGroup) -> None:
    """Ends the threads that watch over the group, which at exit would complain that the others are gone. To be called
    by all of its ranks, after the last operation."""
    group.shutdown()


def _meet(store: Store, name: str, comm: MPI.Intracomm, seconds: float) -> None:
    """Waits for every rank to come. Over the store, which knows who is missing, as an MPI barrier does not."""
    store.set(f"rank {comm.rank}", "here")
    store.add("ranks", 1)
    if wait_until(lambda: store.add("ranks", 0) == comm.size, seconds, longest_pause=0.1):
        return
    missing = [rank for rank in range(comm.size) if not store.check([f"rank {rank}"])]
    in_world = MPI.Group.Translate_ranks(comm.Get_group(), missing, MPI.COMM_WORLD.Get_group())
    names = ", ".join(f"rank {rank}" for rank in in_world)
    raise TimeoutError(f"start-up: after {seconds:.0f} s group {name!r} still waits for {names}")


def _new_group(store: Store, comm: MPI.Intracomm, host: str, device: torch.device, timeout: timedelta) -> ProcessGroup:
    if device.type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return cast(ProcessGroup, dist.ProcessGroupNCCL(store, comm.rank, comm.size, options))
    gloo = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    gloo._timeout = timeout
    # Left to itself it resolves the host name, which on many a node leads to the loopback.
    gloo._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
    return cast(ProcessGroup, dist.ProcessGroupGloo(store, comm.rank, comm.size, gloo))


def _first_broadcast(group: ProcessGroup, device: torch.device) -> None:
    """Makes a group connect now that would otherwise do so at its first use."""
    options = dist.BroadcastOptions()
    options.rootRank = LEADER
    tensor = torch.ones(1, device=device)
    group.broadcast([tensor], options).wait()
    tensor.item()  # on a GPU only this waits until the broadcast is done
