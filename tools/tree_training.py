"""Training in the world of `token_tree`, with the objectives of the package: many runs at once, as one tensor program.

Runs differ in the staleness of their data, learning rate and seed. The trajectories of a prompt of one run are a group
of their own, so the objective keeps runs apart, and Adam works on each number alone: a run is the same whatever others
are beside it. Shapes: C stalenesses, A learning rates, S seeds, G = C·A·S·P policies, N responses of each in a batch;
the others are those of `token_tree`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from token_tree import TokenTree, World
from torch import Tensor

from tba_hpc.objectives import LossInputs, Objective
from tba_hpc.schedules import WarmupStableDecay


@dataclass(frozen=True, slots=True)
class Budget:
    """What every objective gets."""

    rates: Sequence[float]
    """Learning rates to try."""
    seeds: Sequence[int]
    steps: int = 3000
    stable: float = 0.5
    """Share of the steps at the full learning rate; over the rest it falls to 0 in a straight line."""
    samples: int = 32
    """K: responses a prompt in a batch; a batch has all prompts."""
    buffer: int = 16384
    """Responses a prompt in the fixed buffer."""
    adam_betas: tuple[float, float] = (0.9, 0.999)

    def schedule(self, rate: float) -> WarmupStableDecay:
        stable = round(self.stable * self.steps)
        return WarmupStableDecay(kind="warmup_stable_decay", peak=rate, stable=stable, decay=self.steps - stable)


class Snapshots:
    """The policies of now and of each of the last `staleness` optimizer steps."""

    def __init__(self, staleness: int) -> None:
        self._tables: deque[Tensor] = deque(maxlen=staleness + 1)

    def add(self, table: Tensor) -> None:
        """Called once a step with the policies of now, in a tensor that nobody changes."""
        self._tables.append(table)

    @property
    def oldest(self) -> Tensor:
        """The policies of `staleness` steps ago; as long as there are none, the first."""
        return self._tables[0]


class Source(Protocol):
    """Where the trajectories of a batch come from."""

    def draw(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Responses `[G, N]`, and the log-probability of each of their tokens when it was sampled, `[G, N, T]`; the
        policies of now are `table [G, W, M]`."""


class Draws:
    """Random numbers for each seed, the same for each staleness and learning rate."""

    def __init__(self, world: World, budget: Budget, cells: int) -> None:
        """`cells` is C."""
        self._repeats = cells * len(budget.rates)
        self.shape = len(world.reference), budget.samples
        """P, N"""
        self._generators = [torch.Generator().manual_seed(seed) for seed in budget.seeds]

    def map(self, draw: Callable[[torch.Generator], Tensor]) -> list[Tensor]:
        return [draw(generator) for generator in self._generators]

    def spread(self, values: list[Tensor]) -> Tensor:
        """`[P, …]` for each seed as `[G, …]`."""
        return torch.cat(values * self._repeats)


class Stale:
    """Every batch is sampled by the policies of so many optimizer steps ago."""

    def __init__(self, tree: TokenTree, staleness: Sequence[int], draws: Draws) -> None:
        """`staleness` is of each C-th part of the policies."""
        self._tree, self._draws = tree, draws
        self._snapshots = [Snapshots(steps) for steps in staleness]

    def draw(self, table: Tensor) -> tuple[Tensor, Tensor]:
        for snapshots, now in zip(self._snapshots, table.chunk(len(self._snapshots)), strict=True):
            snapshots.add(now)
        policies = torch.cat([snapshots.oldest for snapshots in self._snapshots])
        shape = (*self._draws.shape, self._tree.mask.shape[1])
        uniforms = self._draws.spread(self._draws.map(lambda generator: torch.rand(shape, generator=generator)))
        responses = self._tree.sample(policies, uniforms)
        return responses, self._tree.token_logprobs(policies, responses)


class FixedBuffer:
    """Every batch comes from a buffer that was filled before the start, all responses equally likely."""

    def __init__(self, tree: TokenTree, size: int, draws: Draws) -> None:
        """`size` is of responses a prompt."""
        shape = draws.shape[0], size
        self._draws = draws
        self._held = draws.map(lambda generator: torch.randint(tree.size, shape, generator=generator))
        self._logprobs = tree.policy(torch.ones(tree.size)).flatten()[tree.places]

    def draw(self, table: Tensor) -> tuple[Tensor, Tensor]:
        size = self._held[0].shape[1]
        places = self._draws.map(lambda generator: torch.randint(size, self._draws.shape, generator=generator))
        drawn = [held.gather(1, index) for held, index in zip(self._held, places, strict=True)]
        responses = self._draws.spread(drawn)
        return responses, self._logprobs[responses]


def train(world: World, objective: Objective, budget: Budget, staleness: Sequence[int] | None) -> Tensor:
    """Trains policies from the reference on, one for each staleness (or None, for the fixed buffer), learning rate and
    seed: `[C, A, S, P, W, M]`."""
    cells = 1 if staleness is None else len(staleness)
    draws = Draws(world, budget, cells)
    data = _source(world.tree, budget, staleness, draws)
    start = world.reference.float().expand(len(budget.seeds), -1, -1, -1)
    rates = [*budget.rates] * cells
    logits = [start.clone().requires_grad_() for _ in rates]
    schedules = [budget.schedule(rate) for rate in rates]
    groups = [{"params": [of_seeds]} for of_seeds in logits]
    optimizer = torch.optim.AdamW(groups, betas=budget.adam_betas, weight_decay=0.0, fused=True)
    inputs = Inputs(world)
    for step in range(budget.steps):
        for group, schedule in zip(optimizer.param_groups, schedules, strict=True):
            group["lr"] = schedule(step)
        optimizer.zero_grad()
        table = torch.cat(logits).log_softmax(dim=-2).flatten(0, 1)
        responses, behavior = data.draw(table.detach())
        logprobs = world.tree.token_logprobs(table, responses).flatten(0, 1)
        known = inputs.of(responses, behavior)
        context = objective.group_context(logprobs.detach(), known, world.beta)
        losses, _ = objective.loss(logprobs, known, context, world.beta)
        (losses.sum() / (len(world.reference) * budget.samples)).backward()  # the mean over the batch of each run
        optimizer.step()
    return torch.stack(logits).detach().log_softmax(dim=-2).unflatten(0, (cells, -1))


def _source(tree: TokenTree, budget: Budget, staleness: Sequence[int] | None, draws: Draws) -> Source:
    return FixedBuffer(tree, budget.buffer, draws) if staleness is None else Stale(tree, staleness, draws)


class Inputs:
    """What an objective needs to know of responses beside the policy."""

    def __init__(self, world: World) -> None:
        self._mask = world.tree.mask
        self._shape = world.rewards.shape
        self._rewards = world.rewards.float().flatten()
        self._reference = world.reference.float().flatten(1)[:, world.tree.places].flatten(0, 1)

    def of(self, responses: Tensor, behavior: Tensor) -> LossInputs:
        """Of `responses [G, N]`, sampled with the log-probabilities `behavior [G, N, T]`: G·N rows, a group for each
        policy."""
        policies = torch.arange(len(responses))[:, None]
        prompts, size = self._shape
        rows = (policies % prompts * size + responses).flatten()
        return LossInputs(
            rewards=self._rewards.index_select(0, rows),
            reference_logprobs=self._reference.index_select(0, rows),
            behavior_logprobs=behavior.flatten(0, 1),
            mask=self._mask.index_select(0, responses.flatten()),
            group_ids=policies.expand_as(responses).flatten(),
        )
