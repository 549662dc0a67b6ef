"""Rank 2 fails after a moment; the others would wait for a minute."""

import time

from mpi4py import MPI

from tba_hpc.distributed.abort import abort_on_error

comm = MPI.COMM_WORLD
with abort_on_error(comm, f"searcher 1 (rank {comm.rank})"):
    if comm.rank == 2:
        time.sleep(0.5)
        raise RuntimeError("the reward model is gone")
    time.sleep(60)
