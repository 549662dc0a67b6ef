"""Which trajectories go through the model together, and which trainer gets which queries. Pure planning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """Trajectories for one forward and backward pass."""

    indices: Indices
    """`[M]` rows of the batch that was planned"""
    split: bool
    """Whether some of a row's group may be in other micro-batches; if not, every group is here as a whole."""


def plan(lengths: NDArray[np.integer], group_ids: NDArray[np.integer], budget: int) -> list[MicroBatch]:
    """Every row of the batch in exactly one micro-batch whose rows × longest row is at most `budget` tokens.

    `lengths [N]` are tokens of prompt and response, `group_ids [N]` any numbers. A group within the budget stays whole;
    the rows of larger ones are spread over micro-batches of their own. A single row above the budget is a micro-batch
    of its own. Similar lengths go together, so that little is padding; the largest come first, so that a batch that
    does not fit into memory fails at once."""
    whole: list[Indices] = []
    single: list[Indices] = []
    for group in _groups(group_ids):
        if len(group) * int(lengths[group].max()) <= budget:
            whole.append(group)
        else:
            single.extend(np.split(group, len(group)))
    return [
        *(MicroBatch(indices, split=True) for indices in _pack(single, lengths, budget)),
        *(MicroBatch(indices, split=False) for indices in _pack(whole, lengths, budget)),
    ]


def _groups(group_ids: NDArray[np.integer]) -> list[Indices]:
    """The rows of each group."""
    if len(group_ids) == 0:
        return []
    order = np.argsort(group_ids, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group_ids[order])) + 1)


def _pack(units: Iterable[Indices], lengths: NDArray[np.integer], budget: int) -> list[Indices]:
    """Fills micro-batches with `units` of rows, longest first, which therefore sets the padded length."""
    packed: list[Indices] = []
    current: list[Indices] = []
    rows = longest = 0
    for unit in sorted(units, key=lambda unit: int(lengths[unit].max()), reverse=True):
        if current and (rows + len(unit)) * longest > budget:
            packed.append(np.concatenate(current))
            current, rows = [], 0
        if not current:
            longest = int(lengths[unit].max())
        current.append(unit)
        rows += len(unit)
    if current:
        packed.append(np.concatenate(current))
    return packed


def shard(lengths: NDArray[np.integer], group_ids: NDArray[np.integer], n_trainers: int) -> list[Indices]:
    """Each trainer's rows, in ascending order: whole groups, dealt largest first to the trainer with the fewest tokens.
    Every trainer gets a group if there are enough."""
    shares: list[list[Indices]] = [[] for _ in range(n_trainers)]
    tokens = [0] * n_trainers
    for group in sorted(_groups(group_ids), key=lambda group: int(lengths[group].sum()), reverse=True):
        poorest = min(range(n_trainers), key=lambda i: (tokens[i], len(shares[i])))
        shares[poorest].append(group)
        tokens[poorest] += int(lengths[group].sum())
    return [np.sort(np.concatenate(share)) if share else np.empty(0, np.int64) for share in shares]
