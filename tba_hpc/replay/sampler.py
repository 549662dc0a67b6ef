"""Which trajectories to learn from: samplers over a `ReplayIndex`, composed by a mixture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tba_hpc.replay.index import ReplayIndex


@dataclass(frozen=True, slots=True)
class Group:
    """K trajectories of one query."""

    sequences: NDArray[np.int64]
    """`[K]`"""
    recent: bool
    """Whether they were drawn from the latest arrival."""


class Sampler(Protocol):
    """A way to choose queries and responses."""

    def draw(self, index: ReplayIndex, n: int, k: int, taken: set[int], rng: Generator) -> list[Group]:
        """`n` groups of `k`. Prefers queries that are not in `taken`, which it adds its own to. The index must hold
        something. The result depends on nothing but the arguments."""
        ...


class Uniform:
    """Any query, any of its responses."""

    def draw(self, index: ReplayIndex, n: int, k: int, taken: set[int], rng: Generator) -> list[Group]:
        queries = draw_queries(index.queries, n, taken, rng)
        return [Group(_pick(index.entries(q), draw_uniform, k, rng), recent=False) for q in queries]


class Recent:
    """Queries and responses of the latest arrival; any, should a damaged segment have taken all of those."""

    def draw(self, index: ReplayIndex, n: int, k: int, taken: set[int], rng: Generator) -> list[Group]:
        if not index.recent_queries:
            return Uniform().draw(index, n, k, taken, rng)
        queries = draw_queries(index.recent_queries, n, taken, rng)
        return [Group(_pick(index.recent_entries(q), draw_uniform, k, rng), recent=True) for q in queries]


class RewardSoftmax:
    """Any query, its responses by softmax of reward / temperature."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    def draw(self, index: ReplayIndex, n: int, k: int, taken: set[int], rng: Generator) -> list[Group]:
        queries = draw_queries(index.queries, n, taken, rng)
        return [Group(_pick(index.entries(q), self._draw, k, rng), recent=False) for q in queries]

    def _draw(self, entries: NDArray[np.void], k: int, rng: Generator) -> NDArray[np.intp]:
        return draw_softmax(entries["reward"] / np.float64(self._temperature), k, rng)


class Mixture:
    """For each group one of several samplers, chosen by its share. Earlier ones have first choice of the queries."""

    def __init__(self, parts: Sequence[tuple[float, Sampler]]) -> None:
        """(share, sampler) pairs; shares add up to 1."""
        self._shares = [share for share, _ in parts]
        self._samplers = [sampler for _, sampler in parts]

    def draw(self, index: ReplayIndex, n: int, k: int, taken: set[int], rng: Generator) -> list[Group]:
        groups: list[Group] = []
        for sampler, count in zip(self._samplers, rng.multinomial(n, self._shares), strict=True):
            if count:
                groups += sampler.draw(index, int(count), k, taken, rng)
        # Where a batch is split over trainers, each gets its part of every sampler.
        return [groups[i] for i in rng.permutation(len(groups))]


def draw_queries(candidates: Sequence[int], n: int, taken: set[int], rng: Generator) -> list[int]:
    """`n` of the candidates, uniformly: distinct ones that are not in `taken` as far as they go, then any. Adds them to
    `taken`. Does not look at all the candidates: it draws enough to spare those taken."""
    ranks = rng.choice(len(candidates), min(len(candidates), n + len(taken)), replace=False)
    fresh = [q for q in (candidates[rank] for rank in ranks.tolist()) if q not in taken][:n]
    again = [candidates[rank] for rank in rng.integers(len(candidates), size=n - len(fresh)).tolist()]
    taken.update(fresh, again)
    return fresh + again


def draw_uniform(entries: NDArray[np.void], k: int, rng: Generator) -> NDArray[np.intp]:
    """`[k]` positions, without replacement; where that is not possible all of them, and further draws."""
    n = len(entries)
    if n >= k:
        return rng.choice(n, k, replace=False)
    return np.concatenate([np.arange(n), rng.integers(n, size=k - n)])


def draw_softmax(logits: NDArray[np.float64], k: int, rng: Generator) -> NDArray[np.intp]:
    """`[k]` positions by softmax of `logits [n]`, without replacement: the top k after adding Gumbel noise. Where that
    is not possible all of them, and further draws by the same softmax. A logit of −∞ comes last."""
    n = len(logits)
    if n >= k:
        noisy = logits + rng.gumbel(size=n)
        return np.argpartition(noisy, n - k)[n - k :]
    noisy = logits + rng.gumbel(size=(k - n, n))
    return np.concatenate([np.arange(n), noisy.argmax(axis=1)])


def _pick(
    entries: NDArray[np.void],
    draw: Callable[[NDArray[np.void], int, Generator], NDArray[np.intp]],
    k: int,
    rng: Generator,
) -> NDArray[np.int64]:
    """Sequence numbers `[k]` of the entries that `draw` chooses."""
    sequences: NDArray[np.int64] = entries["sequence"][draw(entries, k, rng)]
    return sequences
