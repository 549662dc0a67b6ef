"""What is to be known of a run besides its weights and trajectories, over all its attempts."""

from __future__ import annotations

import time

from tba_hpc.accuracy import Accuracy
from tba_hpc.checkpoint import CheckpointState
from tba_hpc.intake import Intake


class RunRecord:
    """Goes on from the state in which an attempt began. Time counts from when this is made."""

    def __init__(self, start: CheckpointState, intake: Intake) -> None:
        self._start = start
        self._intake = intake
        self._began = time.monotonic()
        self._train_began: float | None = None
        self.accuracy_before: Accuracy | None = start.accuracy_before
        """Before training; None if there was no evaluation."""

    def begin_training(self) -> None:
        """Training time counts from now on."""
        self._train_began = time.monotonic()

    def state(self, steps: int) -> CheckpointState:
        """Where the run stands after so many optimizer steps."""
        start, intake, now = self._start, self._intake, time.monotonic()
        trained = 0.0 if self._train_began is None else now - self._train_began
        return CheckpointState(
            step=steps,
            reference_version=start.reference_version,
            prompts=start.prompts.model_copy(update={"taken": tuple(intake.prompts_taken.tolist())}),
            received=intake.received,
            duplicates=intake.duplicates,
            train_seconds=start.train_seconds + trained,
            total_seconds=start.total_seconds + now - self._began,
            accuracy_before=self.accuracy_before,
        )
