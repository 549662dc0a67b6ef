"""Runs of one configuration, one after the other: `several_runs.py CONFIG RUNS`, where RUNS is JSON,
`[[ranks, [override, …]], …]`. Ranks that a run has no use for wait for the next."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mpi4py import MPI
from reporting import meet

from tba_hpc.distributed.abort import abort_on_error


def run_all(config: Path, runs: list[tuple[int, list[str]]]) -> None:
    from tba_hpc.interruption import Interruption
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
    for ranks, overrides in runs:
        comm = world.Split(0 if world.rank < ranks else 1, world.rank)
        if world.rank < ranks:
            assert run_rank(comm, config, overrides, False, None, Interruption()) == 0
        meet(world)


def main() -> None:
    with abort_on_error(MPI.COMM_WORLD, f"rank {MPI.COMM_WORLD.rank}"):
        run_all(Path(sys.argv[1]), json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
