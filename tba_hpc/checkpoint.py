"""The checkpoint of a run of reinforcement learning: besides what every checkpoint has,

reference/              the reference policy, if it has moved
replay/                 the replay buffer: index, segments as hard links, what was in RAM
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt

from tba_hpc.accuracy import Accuracy
from tba_hpc.checkpoint_folder import CheckpointFolder, SavedState, newest, verify
from tba_hpc.prompts import PromptOrder
from tba_hpc.settings import PositiveInt, Settings


class PromptState(Settings):
    """How far the searchers have come: `PromptOrder`, and the prompts taken of each share."""

    size: PositiveInt
    backlog: tuple[NonNegativeInt, ...]
    epoch: NonNegativeInt
    division: NonNegativeInt
    taken: tuple[NonNegativeInt, ...]
    """By searcher: prompts whose trajectories have arrived."""

    @classmethod
    def of(cls, order: PromptOrder, taken: Iterable[int]) -> PromptState:
        return cls(
            size=order.size,
            backlog=tuple(order.backlog.tolist()),
            epoch=order.epoch,
            division=order.division,
            taken=tuple(taken),
        )

    def order(self, seed: int) -> PromptOrder:
        return PromptOrder(self.size, seed, np.array(self.backlog, np.int64), self.epoch, self.division)


class CheckpointState(SavedState):
    """Where a run of reinforcement learning stands."""

    reference_version: NonNegativeInt
    """Optimizer step of the policy that it is; 0 for the one that the run began with."""
    prompts: PromptState
    received: NonNegativeInt
    """Trajectories that have arrived, duplicates included."""
    duplicates: NonNegativeInt
    train_seconds: NonNegativeFloat
    """Over all attempts, without evaluations."""
    total_seconds: NonNegativeFloat
    """Over all attempts, from the time when all ranks have loaded their models."""
    save_seconds: NonNegativeFloat
    """How long the save before this one took; 0 where there was none."""
    accuracy_before: Accuracy | None
    """Before training; None if there was no evaluation."""

    @classmethod
    def of_new_run(cls, prompts: PromptState) -> CheckpointState:
        return cls(
            step=0,
            reference_version=0,
            prompts=prompts,
            received=0,
            duplicates=0,
            train_seconds=0.0,
            total_seconds=0.0,
            save_seconds=0.0,
            accuracy_before=None,
        )


class Checkpoint(CheckpointFolder[CheckpointState]):
    """A complete checkpoint of a run of reinforcement learning."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, CheckpointState)
        self.reference = path / "reference"
        self.replay = path / "replay"


def verify_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a folder. Raises `CheckpointError` if it is incomplete or damaged."""
    return verify(path, Checkpoint)


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest one of a run that is complete and undamaged. Raises `CheckpointError` where all there are cannot be
    used."""
    return newest(folder, Checkpoint)
