"""Batches and configurations for the tests of the replay buffer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tba_hpc.config import BufferConfig
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.trajectory import Trajectory, TrajectoryBatch


class Item(NamedTuple):
    """A trajectory in short; `serial` tells apart what is otherwise equal."""

    prompt_id: int
    tokens: tuple[int, ...]
    serial: int
    reward: float = 0.0


def make_batch(items: Iterable[Item]) -> TrajectoryBatch:
    """All that is not in the item follows from its serial number, so that a mix-up of tokens shows."""
    return TrajectoryBatch.from_trajectories(
        [
            Trajectory(
                prompt_id=item.prompt_id,
                prompt_tokens=np.full(item.prompt_id % 3 + 1, item.prompt_id, np.int32),
                response_tokens=np.array(item.tokens, np.int32),
                behavior_logprobs=-np.arange(len(item.tokens), dtype=np.float32) - item.serial,
                reference_logprobs=np.full(len(item.tokens), item.serial / 8, np.float32),
                reward=item.reward,
                correct=item.serial % 2 == 0,
                finished=item.serial % 3 == 0,
                temperature=1.0,
                policy_version=item.serial,
                reference_version=0,
                searcher=item.serial % 5,
            )
            for item in items
        ]
    )


def items_of(batch: TrajectoryBatch) -> list[Item]:
    """Back from a batch; fails where the batch has not what `make_batch` made of the item."""
    items = [Item(t.prompt_id, tuple(t.response_tokens.tolist()), t.policy_version, t.reward) for t in batch]
    assert_same(batch, make_batch(items))
    return items


def assert_same(a: TrajectoryBatch, b: TrajectoryBatch) -> None:
    """Bit for bit."""
    for name in ("rows", "prompt_tokens", "response_tokens", "behavior_logprobs", "reference_logprobs"):
        left, right = getattr(a, name), getattr(b, name)
        assert left.dtype == right.dtype, name
        assert left.tobytes() == right.tobytes(), name


def contents(buffer: ReplayBuffer, max_per_query: int) -> dict[int, list[Item]]:
    """What a buffer with `most_on_policy` = 0 holds of each query, oldest first."""
    if not len(buffer):
        return {}
    batch = buffer.sample(buffer.stats().queries, max_per_query, step=0)
    held: dict[int, set[Item]] = {}
    for item in items_of(batch.trajectories):
        held.setdefault(item.prompt_id, set()).add(item)
    return {prompt_id: sorted(items, key=lambda item: item.serial) for prompt_id, items in held.items()}


def make_config(**changes: Any) -> BufferConfig:
    """A roomy buffer that samples uniformly and spills nothing, unless changed."""
    values = {"most_on_policy": 0.0, "max_per_query": 1000, "capacity": 10**6, "start_size": 1, **changes}
    return BufferConfig(**values)


def restored(folder: Path, directory: Path, **config: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(make_config(**config), directory, seed=5)
    buffer.restore(folder)
    return buffer


def filled(directory: Path, **changes: Any) -> ReplayBuffer:
    """48 trajectories of 5 queries: segments, unless changed, and blocks in RAM with dead trajectories in them."""
    config = {"memory_limit": 6000, "segment_bytes": 1500, "max_per_query": 30, **changes}
    buffer = ReplayBuffer(make_config(**config), directory, seed=5)
    for i in range(16):
        buffer.add(make_batch(Item(j % 5, (j,) * 20, j) for j in range(3 * i, 3 * i + 3)), arrival=i)
    buffer.add(make_batch(Item(j % 5, (j,) * 20, j) for j in range(0, 48, 7)), arrival=16)
    for tier in (buffer._store.ram, buffer._store.disk):
        assert changes or 10 < tier.live_rows < sum(len(block.sequences) for block in tier.blocks)
    return buffer


def write_snapshot(buffer: ReplayBuffer, folder: Path) -> None:
    snapshot = buffer.snapshot()
    snapshot.write(folder)
    snapshot.release()
