"""What a checkpoint of a run of reinforcement learning is made of, copied between two steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from tba_hpc.checkpoint import Checkpoint, CheckpointState
from tba_hpc.checkpointer import Snapshot
from tba_hpc.config import RunConfig
from tba_hpc.optim.engine import OptimEngine
from tba_hpc.reference import ReferencePolicy
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.settings import to_yaml


class RunSnapshots:
    """Takes them, for a `Checkpointer`. For trainer 0's main thread."""

    def __init__(
        self,
        config: RunConfig,
        engine: OptimEngine,
        tokenizer: PreTrainedTokenizerBase,
        buffer: ReplayBuffer,
        describe: Callable[[int], CheckpointState],
        reference: ReferencePolicy | None = None,
    ) -> None:
        """`describe` gives the rest of the state after so many steps; `reference`: π_ref, if it moves."""
        self._config = config
        self._engine = engine
        self._tokenizer = tokenizer
        self._buffer = buffer
        self._describe = describe
        self._reference = reference

    def take(self, steps: int, save_seconds: float) -> Snapshot:
        state = self._describe(steps).model_copy(update={"save_seconds": save_seconds})
        config_yaml = to_yaml(self._config)
        tensors = {name: tensor.to("cpu", copy=True) for name, tensor in self._engine.state().items()}
        reference = self._reference if state.reference_version else None
        reference_weights = reference.copied_state() if reference else {}
        replay = self._buffer.snapshot()

        def fill(folder: Path) -> None:
            checkpoint = Checkpoint(folder)
            checkpoint.write_state(state, config_yaml, tensors)
            self._engine.save_pretrained(checkpoint.policy, self._tokenizer, tensors)
            if reference:
                reference.save_pretrained(checkpoint.reference, reference_weights)
            replay.write(checkpoint.replay)

        return Snapshot(fill, replay.release)
