"""Builds worlds of 2, 3 and 4 ranks and reports what each rank became: `roles.py CONFIG`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mpi4py import MPI
from reporting import gather_texts, meet, report

from tba_hpc.config import load_run_config
from tba_hpc.distributed.world import World, _fair_threads, broadcast_text, build_world, finish_together
from tba_hpc.settings import ConfigError


def describe(world: World) -> str:
    exchange = world.exchange.rank if world.exchange else "-"
    trainers = f"{world.trainers.rank}/{world.trainers.size}" if world.trainers else "-"
    counts = f"{world.n_trainers}+{world.n_searchers}"
    return f"{world.name}, {counts}, exchange {exchange}, trainers {trainers}, {world.host}"


def main() -> None:
    comm = MPI.COMM_WORLD
    worlds: dict[str, list[str]] = {}
    for size in range(2, comm.size + 1):
        for trainers in range(1, size + 1):
            part = comm.Split(0 if comm.rank < size else 1, comm.rank)
            text = ""
            if comm.rank < size:
                try:
                    world = build_world(part, load_run_config(Path(sys.argv[1]), [f"distributed.trainers={trainers}"]))
                    assert broadcast_text(part, f"from {size}" if part.rank == 0 else None, 60) == f"from {size}"
                    finish_together(world, 60)
                    text = describe(world)
                except ConfigError as error:
                    text = f"error: {error}"
            meet(comm)
            worlds[f"{size} {trainers}"] = gather_texts(comm, text)
    threads = [_fair_threads(MPI.COMM_SELF)]
    threads.append(_fair_threads(comm))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[comm.rank % len(cores)]})
    bound = gather_texts(comm, str(_fair_threads(comm)))
    report(comm, worlds=worlds, threads=threads, bound=bound, cores=len(cores))


if __name__ == "__main__":
    main()
