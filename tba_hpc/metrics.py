"""Where a run's numbers go: TensorBoard for people, `metrics.jsonl` for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from torch.utils.tensorboard import SummaryWriter

from tba_hpc.run_dir import RunDir


class MetricsWriter:
    """Writes `metrics.jsonl`, one object a step with `step` and `time` (seconds since the epoch), `evaluations.jsonl`,
    and `tensorboard/` with the same scalars, histograms and texts."""

    def __init__(self, run_dir: RunDir, steps_done: int = 0) -> None:
        """TensorBoard forgets what an attempt that died has written of steps after the first `steps_done`."""
        self._jsonl = run_dir.metrics.open("a", encoding="utf-8")
        self._evaluations = run_dir.evaluations
        self._board = SummaryWriter(str(run_dir.tensorboard), flush_secs=10, purge_step=steps_done + 1)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Every line is flushed, so that a job which dies leaves all of its numbers."""
        now = time.time()
        finite = {name: float(value) if np.isfinite(value) else None for name, value in values.items()}
        self._jsonl.write(json.dumps({"step": step, "time": now, **finite}) + "\n")
        self._jsonl.flush()
        for name, value in values.items():
            self._board.add_scalar(name, value, step, walltime=now)

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        """An evaluation of the policy of step `step`, which may lie some steps back: `evaluations.jsonl` has a line for
        each."""
        with self._evaluations.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "time": time.time(), **values}) + "\n")
        for name, value in values.items():
            self._board.add_scalar(f"evaluation/{name}", value, step)

    def histogram(self, step: int, name: str, values: ArrayLike) -> None:
        """Distribution of `values [N]`."""
        self._board.add_histogram(name, np.asarray(values), step)

    def text(self, step: int, name: str, markdown: str) -> None:
        self._board.add_text(name, markdown, step)

    def close(self) -> None:
        self._jsonl.close()
        self._board.close()
