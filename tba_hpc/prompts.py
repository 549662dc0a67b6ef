"""Which prompts a searcher works on."""

from __future__ import annotations

import numpy as np

from tba_hpc.settings import ConfigError


class PromptStream:
    """The disjoint share of one searcher: epoch after epoch, every prompt comes up once on exactly one searcher, in an
    order that depends on the seed and the epoch alone."""

    def __init__(self, size: int, seed: int, index: int, shares: int) -> None:
        """Prompts are 0 … `size` − 1; this is share `index` of `shares`. Raises `ConfigError` if some share were
        empty."""
        if size < shares:
            raise ConfigError(f"{size} training prompts are too few for {shares} searchers: each needs at least one")
        self._size, self._seed, self._index, self._shares = size, seed, index, shares
        self._epoch = 0
        self._left: list[int] = []

    def take(self, n: int) -> list[int]:
        """The next `n` prompt ids."""
        while len(self._left) < n:
            # A spawn key, not [seed, epoch]: such a pair is the stream of another part of the run at another step.
            sequence = np.random.SeedSequence(self._seed, spawn_key=(self._epoch,))
            order = np.random.default_rng(sequence).permutation(self._size)
            self._left += order[self._index :: self._shares].tolist()
            self._epoch += 1
        taken, self._left = self._left[:n], self._left[n:]
        return taken
