"""What an objective is: from log-probabilities and rewards of grouped trajectories to a loss for each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from tba_hpc.config import ObjectiveConfig


@dataclass(frozen=True, slots=True, eq=False)
class LossInputs:
    """What is known of N trajectories, responses padded to R tokens. Padding may hold anything, -inf and nan too."""

    rewards: Tensor
    """`[N]` float32, r(y; x)"""
    reference_logprobs: Tensor
    """`[N, R]` float32, log π_ref of each token"""
    behavior_logprobs: Tensor
    """`[N, R]` float32, log-probability of each token under the distribution it was sampled from"""
    mask: Tensor
    """`[N, R]` bool, true at tokens of the response"""
    group_ids: Tensor
    """`[N]` int64, which query a trajectory answers; any numbers, in any order"""


class Objective(ABC):
    """A loss on trajectories, in two parts so that the rows of one query may go through the model separately."""

    context_names: tuple[str, ...]
    """Columns of what `group_context` returns."""
    metric_names: tuple[str, ...]
    """Keys of the metrics that `loss` returns."""

    @abstractmethod
    def __init__(self, config: ObjectiveConfig) -> None:
        """`config` is that of this objective."""

    @abstractmethod
    def group_context(self, logprobs: Tensor, inputs: LossInputs, beta: float) -> Tensor:
        """Detached statistics `[N, C]` of each trajectory among those of its query: all that couples one to another.

        `logprobs [N, R]` are log π_θ of each token; every trajectory of each query must be among the rows."""

    @abstractmethod
    def loss(
        self, logprobs: Tensor, inputs: LossInputs, context: Tensor, beta: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Each trajectory's loss `[N]`, differentiable in `logprobs [N, R]`, and detached metrics `[N]` by name.

        `context [N, C]` is that of `group_context`; the rows may be any part of those it was computed from."""
