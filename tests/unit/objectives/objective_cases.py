"""Random trajectories for all objectives, and what comes out of one for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import TypeAdapter

from tba_hpc.config import ObjectiveConfig
from tba_hpc.objectives import OBJECTIVES, LossInputs, Objective

Array = NDArray[np.float64]


def make(name: str, **options: Any) -> Objective:
    """The objective with a β that is of no account: losses are given theirs."""
    settings = {"name": name, "beta": {"kind": "constant", "value": 1.0}, **options}
    return OBJECTIVES[name](TypeAdapter(ObjectiveConfig).validate_python(settings))


@dataclass
class Case:
    """Random trajectories in float64, rows of a group anywhere."""

    logprobs: Array
    reference: Array
    mask: NDArray[np.bool_]
    behavior: Array
    rewards: Array
    group_ids: NDArray[np.int64]
    beta: float

    def tensors(self) -> tuple[torch.Tensor, LossInputs]:
        """Differentiable log-probabilities, and the rest with padding that would spoil any sum it entered."""
        garbage = np.resize([-np.inf, np.nan, 1e30], self.mask.shape)
        reference = torch.tensor(np.where(self.mask, self.reference, garbage), dtype=torch.float32)
        inputs = LossInputs(
            rewards=torch.tensor(self.rewards, dtype=torch.float32),
            reference_logprobs=reference,
            behavior_logprobs=torch.tensor(np.where(self.mask, self.behavior, garbage), dtype=torch.float32),
            mask=torch.tensor(self.mask),
            group_ids=torch.tensor(self.group_ids),
        )
        logprobs = torch.tensor(np.where(self.mask, self.logprobs, garbage), dtype=torch.float32, requires_grad=True)
        return logprobs, inputs

    def on_policy(self) -> Case:
        """The same responses, had the policy as it is now sampled them."""
        return replace(self, behavior=self.logprobs)

    def at_the_reference(self) -> Case:
        """π_θ = π_ref = π_behavior."""
        return replace(self, behavior=self.logprobs, reference=self.logprobs)

    def whole_responses(self) -> Case:
        """As sampling gives them: no group of one, no empty response."""
        rows = [j for j in range(len(self.rewards)) if (self.group_ids == self.group_ids[j]).sum() > 1]
        mask = self.mask[rows].copy()
        mask[:, 0] = True
        return Case(
            self.logprobs[rows],
            self.reference[rows],
            mask,
            self.behavior[rows],
            self.rewards[rows],
            self.group_ids[rows],
            self.beta,
        )


@st.composite
def cases(draw: st.DrawFn, narrowest: int = 0) -> Case:
    """With groups of one, empty responses and equal rewards among them. Padded to `narrowest` tokens or more."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    group_ids = rng.permutation(np.repeat(rng.choice(100, len(sizes), replace=False), sizes))
    n, width = len(group_ids), draw(st.integers(narrowest, 6))
    logprobs = -rng.exponential(1.0, (n, width))
    return Case(
        logprobs=logprobs,
        reference=-rng.exponential(1.0, (n, width)),
        behavior=logprobs + rng.normal(0, draw(st.sampled_from([0.1, 1.0])), (n, width)),
        mask=np.arange(width) < rng.integers(0, width + 1, n)[:, None],
        rewards=rng.normal(0, 1, n) if draw(st.booleans()) else rng.integers(0, 2, n).astype(float),
        group_ids=group_ids,
        beta=draw(st.sampled_from([0.01, 0.1, 1.0])),
    )


def close(actual: torch.Tensor, expected: Array, scale: float = 1.0) -> None:
    """Equal to 1e-5, relative to the size of the terms that cancel."""
    np.testing.assert_allclose(actual.detach().numpy() / scale, expected / scale, atol=1e-5, rtol=1e-5)


@dataclass
class Outcome:
    context: torch.Tensor
    loss: torch.Tensor
    metrics: dict[str, torch.Tensor]
    gradient: torch.Tensor
    """Of the sum of the losses, `[N, R]`"""


def outcome(objective: Objective, case: Case) -> Outcome:
    logprobs, inputs = case.tensors()
    context = objective.group_context(logprobs, inputs, case.beta)
    loss, metrics = objective.loss(logprobs, inputs, context, case.beta)
    loss.sum().backward()
    assert logprobs.grad is not None
    return Outcome(context, loss.detach(), metrics, logprobs.grad)


def rows_of(inputs: LossInputs, rows: torch.Tensor) -> LossInputs:
    return LossInputs(
        inputs.rewards[rows],
        inputs.reference_logprobs[rows],
        inputs.behavior_logprobs[rows],
        inputs.mask[rows],
        inputs.group_ids[rows],
    )
