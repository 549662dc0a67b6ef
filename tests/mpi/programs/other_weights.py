"""A run whose rank 2 finds another model under the same relative path: `other_weights.py CONFIG FOLDER OTHER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mpi4py import MPI

from tba_hpc.distributed.abort import abort_on_error


def main() -> None:
    comm = MPI.COMM_WORLD
    config, folder, other = sys.argv[1:]
    os.chdir(other if comm.rank == 2 else folder)
    with abort_on_error(comm, f"rank {comm.rank}"):
        from tba_hpc.interruption import Interruption
        from tba_hpc.run import run_rank

        sys.exit(
            run_rank(comm, Path(config), ["model.path=model", f"run_dir={folder}/run"], False, None, Interruption())
        )


if __name__ == "__main__":
    main()
