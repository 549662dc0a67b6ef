"""A start-up that goes wrong, on three ranks: `start_up.py CONFIG`. Reports by rank how each case ended."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
from mpi4py import MPI
from reporting import gather_texts, meet, report

from tba_hpc.config import load_run_config
from tba_hpc.distributed import process_groups
from tba_hpc.distributed.process_groups import make_group, open_store
from tba_hpc.distributed.world import broadcast_text, build_world
from tba_hpc.settings import ConfigError

BOUND = 1.0
MISSING = 2
"""Rank that does not come."""
CPU = torch.device("cpu")
STORES: list[torch.distributed.Store] = []
"""A rank that gives up would otherwise take its store away from those that are about to."""


def outcome(body: Callable[[], object]) -> str:
    try:
        return str(body())
    except (ConfigError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"


def mixed_devices(comm: MPI.Intracomm) -> object:
    """Rank 1 sees a GPU, and all but rank 0 have set their number of threads."""
    environment = {} if comm.rank == 0 else {"OMP_NUM_THREADS": "1"}
    with patch("torch.cuda.is_available", lambda: comm.rank == 1), patch.dict(os.environ, environment):
        return build_world(comm, load_run_config(Path(sys.argv[1]), []))


def mixed_threads(comm: MPI.Intracomm) -> object:
    """Some have set their number of threads."""
    if comm.rank == 0:
        del os.environ["OMP_NUM_THREADS"]
    return build_world(comm, load_run_config(Path(sys.argv[1]), [])).device


def shared_gpu(comm: MPI.Intracomm) -> object:
    """All see one and the same GPU."""
    properties = SimpleNamespace(uuid="GPU-7")
    with (
        patch("torch.cuda.is_available", lambda: True),
        patch("torch.cuda.device_count", lambda: 1),
        patch("torch.cuda.get_device_properties", lambda _: properties),
    ):
        return build_world(comm, load_run_config(Path(sys.argv[1]), []))


def text_that_is_not_taken(comm: MPI.Intracomm) -> object:
    if comm.rank == 0:
        return len(broadcast_text(comm, 50_000_000 * "x", BOUND))
    time.sleep(2 * BOUND)
    return ""


def kept_store(comm: MPI.Intracomm) -> torch.distributed.Store:
    STORES.append(open_store(comm, "127.0.0.1", BOUND))
    return STORES[-1]


def missing_rank(comm: MPI.Intracomm) -> object:
    """Long as an operation of the group may take, a rank that is missing at the start shows soon."""
    store = kept_store(comm)
    if comm.rank == MISSING:
        time.sleep(2 * BOUND)
        return ""
    return make_group(store, "weights", comm, "127.0.0.1", CPU, 1000 * BOUND)


def no_connection(comm: MPI.Intracomm) -> object:
    """All come, and one gets stuck in the call that connects."""
    store = kept_store(comm)
    first_broadcast = process_groups._first_broadcast

    def stuck(group: torch.distributed.ProcessGroup, device: torch.device) -> None:
        if comm.rank == MISSING:
            time.sleep(2 * BOUND)
        first_broadcast(group, device)

    with patch.object(process_groups, "_first_broadcast", stuck):
        return make_group(store, "gradients", comm, "127.0.0.1", CPU, 1000 * BOUND)


CASES = [mixed_threads, mixed_devices, shared_gpu, missing_rank, no_connection, text_that_is_not_taken]


def main() -> None:
    world = MPI.COMM_WORLD
    results = {}
    for case in CASES:
        comm = world.Dup()
        started = time.monotonic()
        text = outcome(lambda comm=comm, case=case: case(comm))
        seconds = time.monotonic() - started
        meet(world)
        results[case.__name__] = gather_texts(world, f"{seconds:.1f} {text}")
    report(world, **results)
    meet(world)
    world.Abort(0)  # the transfers that were given up are in flight for ever: nothing is left to finalize


if __name__ == "__main__":
    main()
