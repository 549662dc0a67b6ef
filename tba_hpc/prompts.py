"""Which prompts a searcher works on, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tba_hpc.settings import ConfigError

PromptIds = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PromptOrder:
    """The order in which all searchers together go through the prompts 0 … `size` − 1: a backlog, then epoch after
    epoch in an order that depends on the seed and the epoch alone. Backlog and epochs are *blocks*; each is dealt out
    to the searchers like cards, so that every prompt of it comes up on exactly one of them."""

    size: int
    seed: int
    backlog: PromptIds
    """`[n]` what earlier divisions of the work left over"""
    epoch: int = 0
    """The first one after the backlog."""
    division: int = 0
    """How many times the work has been divided anew. Part of the seed of what is sampled: a searcher's counter of
    prompts starts again with each division."""

    @classmethod
    def of(cls, size: int, seed: int) -> PromptOrder:
        """That of a new run."""
        return cls(size, seed, np.empty(0, np.int64))

    def share(self, index: int, shares: int, taken: int = 0) -> PromptStream:
        """Share `index` of `shares`, less the first `taken` prompts of it. Raises `ConfigError` if some share were
        empty."""
        if self.size < shares:
            raise ConfigError(
                f"{self.size} training prompts are too few for {shares} searchers: each needs at least one"
            )
        return PromptStream(self, index, shares, taken)

    def after(self, taken: Sequence[int]) -> PromptOrder:
        """What is left when so many prompts of each share have been worked on, as an order of its own that can be
        shared among another number of searchers. What is left of the blocks begun comes first."""
        shares, left, number = len(taken), list(taken), 0
        remaining = [np.empty(0, np.int64)]
        while any(left):
            block = self.block(number)
            fresh = np.ones(len(block), bool)
            for index in range(shares):
                mine = fresh[index::shares]
                done = min(left[index], len(mine))
                mine[:done] = False
                left[index] -= done
            remaining.append(block[fresh])
            number += 1
        if number == 0:
            remaining, number = [self.backlog], 1
        return PromptOrder(self.size, self.seed, np.concatenate(remaining), self.epoch + number - 1, self.division + 1)

    def block(self, number: int) -> PromptIds:
        """Block 0 is the backlog, block n the n-th epoch after it."""
        if number == 0:
            return self.backlog
        # A spawn key, not [seed, epoch]: such a pair is the stream of another part of the run at another step.
        sequence = np.random.SeedSequence(self.seed, spawn_key=(self.epoch + number - 1,))
        return np.random.default_rng(sequence).permutation(self.size)

    def block_size(self, number: int) -> int:
        return self.size if number else len(self.backlog)


class PromptStream:
    """The prompts of one searcher, one after the other."""

    def __init__(self, order: PromptOrder, index: int, shares: int, taken: int) -> None:
        self._order, self._index, self._shares = order, index, shares
        self._left: list[int] = []
        self._blocks = self._remaining_blocks(taken)
        self.taken = taken
        """Prompts of this share that were handed out so far, in earlier attempts of the run too."""

    @property
    def division(self) -> int:
        """See `PromptOrder`."""
        return self._order.division

    def _remaining_blocks(self, taken: int) -> Iterator[list[int]]:
        number = 0
        while taken >= (mine := len(range(self._index, self._order.block_size(number), self._shares))):
            taken -= mine
            number += 1
        yield self._order.block(number)[self._index :: self._shares][taken:].tolist()
        while True:
            number += 1
            yield self._order.block(number)[self._index :: self._shares].tolist()

    def take(self, n: int) -> list[int]:
        """The next `n` prompt ids."""
        while len(self._left) < n:
            self._left += next(self._blocks)
        taken, self._left = self._left[:n], self._left[n:]
        self.taken += n
        return taken
