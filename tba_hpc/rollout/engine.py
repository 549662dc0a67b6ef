"""What searchers ask of a generation engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tba_hpc.rollout.ending import ResponseEnd


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to draw tokens. A temperature of 0 decodes greedily."""

    samples: int
    """Responses for each prompt."""
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled response."""

    tokens: NDArray[np.int32]
    """`[R]` exactly the sampled ids, those that ended the response included."""
    logprobs: NDArray[np.float32]
    """`[R]` log-probabilities under the distribution sampled from (temperature and top-p applied)."""
    finished: bool
    """Whether it ended by itself; otherwise it was cut at `max_tokens`."""


class RolloutEngine(Protocol):
    """Holds a copy of the policy and samples from it."""

    @property
    def version(self) -> int:
        """Optimizer step of the weights in use."""
        ...

    @property
    def ending(self) -> ResponseEnd:
        """Of its responses."""
        ...

    def generate(
        self,
        prompts: Sequence[NDArray[np.int32]],
        params: SamplingParams,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[list[Rollout]]:
        """`params.samples` rollouts for each prompt `[P]`, in the order of the prompts; fewer than asked for, never
        a partial one, if `should_stop` turns true meanwhile."""
        ...

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Replaces parameters by name. Raises `ValueError` for a name, shape or dtype that the model does not have;
        the engine must not be used after that."""
        ...
