"""A run in which something goes wrong: `failing_run.py MODE CONFIG MARK [OVERRIDES]`.

The file MARK is made the moment before. What `tba-hpc train` does on a rank, but for the task."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from mpi4py import MPI

from tba_hpc.distributed.abort import abort_on_error

MODE, CONFIG, MARK, *OVERRIDES = sys.argv[1:]


def run() -> int:
    from tba_hpc.interruption import Interruption
    from tba_hpc.run import run_rank
    from tba_hpc.tasks import TASKS
    from tba_hpc.tasks.arithmetic import Arithmetic
    from tba_hpc.tasks.base import Score
    from tba_hpc.trajectory import Prompt

    rank = MPI.COMM_WORLD.rank

    class Failing(Arithmetic):
        """Fails on rank 2 at the third batch to score."""

        calls = 0

        def score(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[Score]:
            self.calls += 1
            if rank == 2 and self.calls == 3 and MODE != "trainer":
                Path(MARK).touch()
                if MODE == "exit":
                    os._exit(3)
                raise RuntimeError("no verdict on this")
            return super().score(prompts, responses)

    def no_text(*_: object) -> str:
        """Fails on rank 0 at the first sample text."""
        Path(MARK).touch()
        raise RuntimeError("no text for this")

    TASKS["failing"] = Failing
    overrides = ["task.name=failing", "evaluation.problems=0", *OVERRIDES]
    with patch("tba_hpc.run_leader._render", no_text) if MODE == "trainer" else nullcontext():
        return run_rank(MPI.COMM_WORLD, Path(CONFIG), overrides, False, None, Interruption())


def main() -> None:
    comm = MPI.COMM_WORLD
    with abort_on_error(comm, f"rank {comm.rank}"):
        sys.exit(run())


if __name__ == "__main__":
    main()
