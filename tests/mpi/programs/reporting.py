"""How the programs tell what they saw: one line of JSON from rank 0."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from mpi4py import MPI

WIDTH = 2000


def report(comm: MPI.Intracomm, **values: object) -> None:
    if comm.rank == 0:
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()


def gather_texts(comm: MPI.Intracomm, text: str) -> list[str]:
    """The text of every rank; on rank 0 only, elsewhere nothing."""
    mine = np.array([text.encode()[:WIDTH]], f"S{WIDTH}")
    texts = np.zeros(comm.size if comm.rank == 0 else 0, f"S{WIDTH}")
    comm.Gather([mine, MPI.BYTE], [texts, MPI.BYTE])
    return [text.decode() for text in texts.tolist()]


def meet(comm: MPI.Intracomm) -> None:
    """A barrier that leaves the cores to those that are not there yet."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.01)
