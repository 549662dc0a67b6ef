"""Generation at the pace of another machine, for measurements where ranks share too few processors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.engine import Rollout, RolloutEngine, SamplingParams

_POLL_SECONDS = 0.05


class PacedEngine:
    """Another engine that never takes less than `seconds_per_token` for each token of a batch's longest response, as a
    device does that works on all rows at once. It sleeps for the rest, so that other ranks have the processor."""

    def __init__(self, engine: RolloutEngine, seconds_per_token: float) -> None:
        self._engine = engine
        self._seconds_per_token = seconds_per_token

    @property
    def version(self) -> int:
        return self._engine.version

    @property
    def ending(self) -> ResponseEnd:
        return self._engine.ending

    def generate(
        self,
        prompts: Sequence[NDArray[np.int32]],
        params: SamplingParams,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[list[Rollout]]:
        started = time.monotonic()
        groups = self._engine.generate(prompts, params, should_stop)
        longest = max((len(rollout.tokens) for group in groups for rollout in group), default=0)
        end = started + longest * self._seconds_per_token
        while (left := end - time.monotonic()) > 0 and not should_stop():
            time.sleep(min(left, _POLL_SECONDS))
        return groups

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        self._engine.load_weights(weights, version)
