"""What is to be known of a run besides its weights and trajectories, over all its attempts."""

from __future__ import annotations

import time

from tba_hpc.accuracy import Accuracy
from tba_hpc.checkpoint import CheckpointState
from tba_hpc.intake import Arrived
from tba_hpc.reference import ReferencePolicy


class RunRecord:
    """Goes on from the state in which an attempt began. Time counts from when this is made."""

    def __init__(self, start: CheckpointState, arrived: Arrived, reference: ReferencePolicy | None) -> None:
        """`reference`: π_ref, if it moves."""
        self._start = start
        self._arrived = arrived
        self._reference = reference
        self._began = time.monotonic()
        self._train_began: float | None = None
        self.accuracy_before: Accuracy | None = start.accuracy_before
        """Before training; None if there was no evaluation."""

    def begin_training(self) -> None:
        """Training time counts from now on."""
        self._train_began = time.monotonic()

    def state(self, steps: int) -> CheckpointState:
        """Where the run stands after so many optimizer steps."""
        start, arrived, now = self._start, self._arrived, time.monotonic()
        trained = 0.0 if self._train_began is None else now - self._train_began
        return CheckpointState(
            step=steps,
            reference_version=self._reference.version if self._reference else start.reference_version,
            prompts=start.prompts.model_copy(update={"taken": tuple(arrived.prompts.tolist())}),
            received=arrived.trajectories,
            duplicates=arrived.duplicates,
            train_seconds=start.train_seconds + trained,
            total_seconds=start.total_seconds + now - self._began,
            save_seconds=start.save_seconds,
            accuracy_before=self.accuracy_before,
        )
