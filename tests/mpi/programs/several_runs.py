"""Runs of one configuration, one after the other: `several_runs.py CONFIG RUNS`, where RUNS is JSON, a list of
`{"ranks": 3, "run_dir": …, "overrides": […], "resume": …, "leave_after": …}`. The last two may be left out; rank 0 of a
run is asked to save and leave once metrics of so many steps are written. Ranks that a run has no use for wait for the
next."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI
from reporting import meet

from tba_hpc.distributed.abort import abort_on_error


class Request:
    """An `Interruption` that comes when so many steps have been done; never if `steps` is None."""

    def __init__(self, run_dir: Path, steps: int | None) -> None:
        self._metrics, self._steps = run_dir / "metrics.jsonl", steps
        self.watching_since = time.time()

    @property
    def signal(self) -> signal.Signals | None:
        if self._steps is None or not self._metrics.exists():
            return None
        done = len(self._metrics.read_text().splitlines())
        return signal.SIGUSR1 if done >= self._steps else None

    def has_come(self) -> bool:
        return False  # only rank 0 is asked


def run_all(config: Path, runs: list[dict[str, Any]]) -> None:
    from tba_hpc.interruption import SAVED_EXIT_CODE
    from tba_hpc.run import run_rank
    from tba_hpc.tasks import TASKS
    from tba_hpc.tasks.arithmetic import Arithmetic
    from tba_hpc.tasks.base import Score, Split
    from tba_hpc.trajectory import Prompt

    class Lengths(Arithmetic):
        """Rewards long responses, so that random weights have something to learn from too."""

        def score(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[Score]:
            return [Score(reward=len(response) / 6, correct=len(response) > 3) for response in responses]

    class Slow(Lengths):
        """Takes longer over the evaluation than the time limit of any other wait."""

        def prompt(self, split: Split, index: int) -> Prompt:
            if split == "test" and index == 0:
                time.sleep(7)
            return super().prompt(split, index)

    TASKS["lengths"], TASKS["slow"] = Lengths, Slow
    world = MPI.COMM_WORLD
    for run in runs:
        ranks, run_dir, leave_after = run["ranks"], Path(run["run_dir"]), run.get("leave_after")
        comm = world.Split(0 if world.rank < ranks else 1, world.rank)
        if world.rank < ranks:
            overrides = [f"run_dir={run_dir}", *run["overrides"]]
            code = run_rank(comm, config, overrides, False, run.get("resume"), Request(run_dir, leave_after))
            assert code == (SAVED_EXIT_CODE if leave_after and world.rank == 0 else 0)
        meet(world)


def main() -> None:
    with abort_on_error(MPI.COMM_WORLD, f"rank {MPI.COMM_WORLD.rank}"):
        run_all(Path(sys.argv[1]), json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
