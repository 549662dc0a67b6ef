"""What a checkpoint holds, read back as a run would."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tiny import tiny_settings

from tba_hpc.checkpoint import Checkpoint
from tba_hpc.config import RunConfig
from tba_hpc.prompts import PromptOrder
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.settings import validate
from tba_hpc.trajectory import TrajectoryBatch

KEEP_ALL = ["buffer.deduplicate=false", "buffer.max_per_query=100000", "buffer.capacity=10000000"]
"""Overrides of a run whose buffer keeps every trajectory."""
SETTINGS = tiny_settings("", "")
SAMPLES, SEED = SETTINGS["rollout"]["samples_per_query"], SETTINGS["seed"]


def held_in(checkpoint: Checkpoint, folder: Path) -> tuple[NDArray[np.int64], TrajectoryBatch]:
    """Sequence numbers and trajectories of its replay buffer, which is put into an empty folder."""
    config = validate(RunConfig, tiny_settings("model", "run"), "").buffer
    buffer = ReplayBuffer(config.model_copy(update={"deduplicate": False}), folder, SEED)
    buffer.restore(checkpoint.replay)
    held = buffer.contents()
    buffer.close()
    return held


def prompts_by_searcher(trajectories: TrajectoryBatch, n_searchers: int) -> list[list[int]]:
    """In the order in which they arrived; each stands there once for its S trajectories."""
    result = []
    for searcher in range(n_searchers):
        ids = trajectories.rows["prompt_id"][trajectories.rows["searcher"] == searcher].reshape(-1, SAMPLES)
        assert (ids == ids[:, :1]).all(), "the S trajectories of a prompt arrive together"
        result.append(ids[:, 0].tolist())
    return result


def check_nothing_lost_or_doubled(checkpoint: Checkpoint, folder: Path, seed: int = SEED) -> None:
    """Of a run whose number of searchers never changed: each has worked through its share of the prompts from the
    first on, and all that came of it is there."""
    state, (_, trajectories) = checkpoint.state(), held_in(checkpoint, folder)
    order, n = PromptOrder.of(state.prompts.size, seed), len(state.prompts.taken)
    expected = [order.share(i, n).take(taken) for i, taken in enumerate(state.prompts.taken)]
    assert prompts_by_searcher(trajectories, n) == expected
    assert len(trajectories) == state.received
