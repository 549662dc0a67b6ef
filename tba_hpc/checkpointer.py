"""Saving the run while it goes on: the state is copied between two steps, and written beside the steps that follow."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from tba_hpc.checkpoint_folder import remove_old, write_checkpoint
from tba_hpc.config import CheckpointConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of all that training goes on to change."""

    fill: Callable[[Path], None]
    """Writes it into a folder, on whatever thread. Raises `OSError`."""
    release: Callable[[], None] = lambda: None
    """To be called when it is written, or has failed to be."""


class Checkpointer:
    """Writes the checkpoints of a run. For the main thread of the process that trains, of trainer 0 if there are
    several."""

    def __init__(
        self,
        config: CheckpointConfig,
        folder: Path,
        take: Callable[[int, float], Snapshot],
        first_step: int,
        save_seconds: float = 0.0,
        is_superseded: Callable[[], bool] = lambda: False,
    ) -> None:
        """`take` copies the state after so many steps, in which it notes how many seconds the last save took.
        `first_step`: steps that were done before this attempt; `save_seconds`: how long a save took then.
        `is_superseded`: whether a later attempt of the run has begun, as happens where Slurm has given up a node that
        is only cut off."""
        self._config = config
        self._folder = folder
        self._take = take
        self._last = first_step
        self._save_seconds = save_seconds
        self._is_superseded = is_superseded
        self._writing: Future[float] | None = None
        self._snapshot: Snapshot | None = None
        self.metrics: dict[str, float] = {}
        """Of the last save: seconds that training stood still for it, and that it took in all, beside training."""

    @property
    def save_seconds(self) -> float:
        """How long `save_last` would take, as far as is known: it first waits for a save that is under way."""
        return self._save_seconds * (2 if self.saving else 1)

    @property
    def saving(self) -> bool:
        """Whether a save was still under way after the last step."""
        return self._writing is not None

    def step_done(self, steps: int) -> None:
        """Begins a save if one is due after so many steps; as long as the one before is still being written, it stays
        due. Only where the checkpoint is to be pinned, training waits. A failed save is logged; training goes on, and
        the next may succeed."""
        self._look_after_writing()
        every, pin = self._config.every_steps, self._config.pin_every
        if every is None or steps // every <= self._last // every:
            return
        if pin and steps % pin == 0:
            self._finish_writing()
        if not self._writing:
            self._begin(steps)

    def save_last(self, steps: int) -> None:
        """Saves and waits for it. Raises `OSError` if it fails, and `TimeoutError`."""
        self._finish_writing()
        writing = self._begin(steps)
        self._finish_writing()
        writing.result()

    def _finish_writing(self) -> None:
        """Waits for the save under way, if one is. Raises `TimeoutError`."""
        if self._writing is None:
            return
        seconds = self._config.timeout_seconds
        try:
            self._writing.exception(seconds)
        except TimeoutError as error:
            raise TimeoutError(f"writing a checkpoint to {self._folder} took more than {seconds:.0f} s") from error
        self._look_after_writing()

    def _begin(self, steps: int) -> Future[float]:
        """Copies the state and has it written. The result is how many seconds that has taken from now on. Raises
        `RuntimeError` in an attempt that is superseded."""
        self._check_not_superseded()
        started = time.monotonic()
        self._last = steps
        snapshot = self._snapshot = self._take(steps, self._save_seconds)
        self.metrics["checkpoint/copy_seconds"] = time.monotonic() - started
        writing = self._writing = Future()
        threading.Thread(
            target=self._write, args=(steps, snapshot, started, writing), name="checkpoint", daemon=True
        ).start()
        return writing

    def _write(self, steps: int, snapshot: Snapshot, started: float, writing: Future[float]) -> None:
        """On a thread of its own."""

        def fill(folder: Path) -> None:
            snapshot.fill(folder)
            self._check_not_superseded()

        try:
            path = write_checkpoint(self._folder, steps, fill)
            logger.info("checkpoint %s is complete", path)
            self._remove_old()
            writing.set_result(time.monotonic() - started)
        except BaseException as error:
            writing.set_exception(error)

    def _check_not_superseded(self) -> None:
        if self._is_superseded():
            raise RuntimeError(f"a later attempt of this run writes to {self._folder}: this one must not, and ends")

    def _remove_old(self) -> None:
        try:
            remove_old(self._folder, self._config)
        except OSError as error:
            logger.warning("old checkpoints in %s are not all removed: %s", self._folder, error)

    def _look_after_writing(self) -> None:
        """Once a save has come to its end: what was kept for it is let go, and a failure of the file system told. Any
        other is raised."""
        if self._writing is None or not self._writing.done():
            return
        assert self._snapshot is not None
        self._snapshot.release()
        writing, self._writing, self._snapshot = self._writing, None, None
        error = writing.exception()
        if error is None:
            self.metrics["checkpoint/save_seconds"] = self._save_seconds = writing.result()
        elif isinstance(error, OSError):
            logger.error("no checkpoint was written to %s: %s", self._folder, error)
        else:
            raise error
