"""Three trainers and a searcher that only waits: `trainer_group.py CONFIG`. Trainer 0 deals out batches, among them
shares without trajectories, and all add up what they got, the others with less patience than trainer 0 waits for data.
Then trainer 0 falls silent, and at the end the searcher is late."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from mpi4py import MPI
from reporting import gather_texts, meet, report

from tba_hpc.config import load_run_config
from tba_hpc.distributed import trainer_group
from tba_hpc.distributed.process_groups import close_group
from tba_hpc.distributed.trainer_group import TrainerGroup
from tba_hpc.distributed.world import World, build_world, finish_together
from tba_hpc.trajectory import SampledBatch, Trajectory, TrajectoryBatch

PATIENCE = 2.0
SIZES = [(2, 3, 1), (0, 2, 0), (1, 0, 4)]
"""Trajectories of each trainer, by step."""


def share_of(step: int, trainer: int) -> SampledBatch:
    n = SIZES[step][trainer]
    tokens, logprobs = np.arange(step + 1, dtype=np.int32), np.full(step + 1, -trainer, np.float32)
    trajectories = [
        Trajectory(10 * step + trainer, tokens, tokens, logprobs, logprobs, i / 2, False, True, 1.0, step, 0, 0)
        for i in range(n)
    ]
    batch = TrajectoryBatch.from_trajectories(trajectories)
    return SampledBatch(batch, np.arange(n, dtype=np.int32) + step, np.arange(n) % 2 == 0)


def check(step: int, trainer: int, total: int, share: SampledBatch) -> None:
    expected = share_of(step, trainer)
    assert total == sum(SIZES[step])
    assert share.trajectories.rows.tobytes() == expected.trajectories.rows.tobytes()
    assert share.trajectories.response_tokens.tolist() == expected.trajectories.response_tokens.tolist()
    assert share.group_ids.tolist() == expected.group_ids.tolist()
    assert share.recent.tolist() == expected.recent.tolist()


def reduced(group: TrainerGroup, share: SampledBatch) -> list[float]:
    tensor = torch.tensor([float(len(share)), float(group.rank)])
    group.all_reduce(tensor)
    return tensor.tolist()


def train(world: World) -> list[list[float]]:
    group, sums = TrainerGroup(world, 60, PATIENCE), []
    if world.is_leader:
        for step in range(len(SIZES)):
            wait_for_data(group)
            shares = [share_of(step, trainer) for trainer in range(group.size)]
            group.send(step, shares)
            sums.append(reduced(group, shares[0]))
        group.send_stop()
        group.close()
        return sums
    while (message := group.receive()) is not None:
        step, total, share = message
        check(step, world.index, total, share)
        sums.append(reduced(group, share))
    assert len(sums) == len(SIZES)
    group.close()
    return sums


def wait_for_data(group: TrainerGroup) -> None:
    """Longer than anybody's patience."""
    until = time.monotonic() + 1.5 * PATIENCE
    while time.monotonic() < until:
        time.sleep(0.05)
        group.send_idle()


def lose_trainer_0(world: World) -> str:
    """What the others say of a trainer 0 that sends nothing at all."""
    group = TrainerGroup(world, 60, 1)
    try:
        if not world.is_leader:
            group.receive()
    except RuntimeError as error:
        return str(error)
    finally:
        assert world.trainers is not None
        meet(world.trainers)
    return ""


def main() -> None:
    comm = MPI.COMM_WORLD
    world = build_world(comm, load_run_config(Path(sys.argv[1]), ["distributed.trainers=3"]))
    with patch.object(trainer_group, "close_group", wraps=close_group) as closing:
        sums = train(world) if world.role == "trainer" else []
    silence = gather_texts(comm, lose_trainer_0(world) if world.role == "trainer" else "")
    ending = replace(world, comm=comm.Dup())
    late = ""
    if world.role == "searcher":
        time.sleep(2)
    try:
        finish_together(ending, 1)
    except TimeoutError as error:
        late = str(error)
    meet(comm)
    errors = gather_texts(comm, late)
    report(comm, sums=sums, closed=closing.call_count, silence=silence, errors=errors)
    meet(comm)
    comm.Abort(0)  # the end that did not come about is in flight for ever: nothing is left to finalize


if __name__ == "__main__":
    main()
