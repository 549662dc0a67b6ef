"""What the trainer asks of an optimization engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from tba_hpc.trajectory import SampledBatch


class OptimEngine(Protocol):
    """Holds this trainer's copy of the policy and improves it. All trainers make the same calls in the same order."""

    def step(self, batch: SampledBatch, total: int, beta: float, learning_rate: float) -> dict[str, float]:
        """One optimizer step on the mean loss of `total` trajectories, of which `batch` is this trainer's share: whole
        groups, possibly none. Returns the same metrics on every trainer: means over the `total` trajectories of the
        objective's metrics and of the loss, `grad_norm` before clipping, `tokens` (response tokens) and
        `micro_batches` (forward and backward passes) summed over the trainers, and `skipped_updates`, 1 if the
        gradient was not finite and the weights were left as they are."""
        ...

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        """What is published to searchers, by name, in a fixed order; tied parameters once, under their first name."""
        ...

    def save_pretrained(
        self, path: Path, tokenizer: PreTrainedTokenizerBase, state: Mapping[str, Tensor] | None = None
    ) -> None:
        """Writes policy and tokenizer in Hugging Face format into the folder `path`: the policy of `state`, by default
        as it is now. With a copy of the state it may run beside `step`. Raises `OSError`."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All that `step` changes, weights included, by name. Refers to the live tensors: copy it before the next
        step."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes back to the `state` of an engine of the same model. Raises `ValueError` for one of another model."""
        ...
