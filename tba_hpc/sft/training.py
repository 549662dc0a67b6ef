"""The loop of fine-tuning: step → evaluation → record → save."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from tba_hpc.accuracy import Accuracy
from tba_hpc.checkpointer import Checkpointer, Snapshot
from tba_hpc.evaluator import EvaluationStoppedError, evaluate
from tba_hpc.interruption import Deadline, Interruption
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.settings import to_yaml
from tba_hpc.sft.checkpoint import SftCheckpoint, SftState
from tba_hpc.sft.inputs import SftInputs
from tba_hpc.sft.learner import SftLearner

logger = logging.getLogger(__name__)


class SftTraining:
    """Owns the main thread."""

    def __init__(
        self,
        inputs: SftInputs,
        model: PreTrainedModel,
        learner: SftLearner,
        checkpoints: Path,
        start: SftState | None,
        record: Callable[[int, dict[str, float]], None],
        interruption: Interruption,
        deadline: Deadline,
        is_superseded: Callable[[], bool] = lambda: False,
    ) -> None:
        """`start`: the state that `learner` has loaded; None for a new run. `record` gets the number of steps done and
        the metrics of the last. `is_superseded`: whether a later attempt of the run has begun."""
        self._inputs = inputs
        self._config = inputs.config
        self._model = model
        self._learner = learner
        self._record = record
        self._interruption = interruption
        self._deadline = deadline
        self._first = self.steps_done = start.step if start else 0
        self.accuracy: Accuracy | None = start.accuracy if start else None
        """Of the weights as they are; None if they have not been evaluated."""
        self.reason_to_leave: str | None = None
        """Why the run has to go on in another job, if it has to."""
        self._unrecorded: dict[str, float] | None = start.unrecorded if start else None
        save_seconds = start.save_seconds if start else 0.0
        self._checkpointer = Checkpointer(
            self._config.checkpoint, checkpoints, self._snapshot, self._first, save_seconds, is_superseded
        )

    def run(self) -> None:
        """Trains until an evaluation reaches `stop_at_accuracy`, at most `max_steps` steps, unless the run has to leave
        before, and saves."""
        batches = _shuffled_batches(len(self._inputs.corpus), self._config.training.batch_size, self._config.seed)
        remaining = itertools.islice(batches, self.steps_done, None)
        while not self._is_done() and not self._has_to_leave():
            if self._unrecorded is None:
                self._step(next(remaining))
            self._evaluate_and_record()
            if self._unrecorded is None and not self._is_done():
                self._checkpointer.step_done(self.steps_done)
        if self.steps_done > self._first or self.reason_to_leave:  # else it is as it was loaded
            self._checkpointer.save_last(self.steps_done)

    def _is_done(self) -> bool:
        training = self._config.training
        enough = self.accuracy is not None and self.accuracy.share >= training.stop_at_accuracy
        return self._unrecorded is None and (enough or self.steps_done >= training.max_steps)

    def _has_to_leave(self) -> bool:
        """Whether the run is to save and leave now. Once it is, it stays so."""
        if self.reason_to_leave is None:
            if self._interruption.signal:
                self.reason_to_leave = f"received {self._interruption.signal.name}"
            elif self._deadline.has_come(self._checkpointer.save_seconds):
                self.reason_to_leave = "the job is about to end"
            if self.reason_to_leave:
                logger.info("leaving after step %d: %s", self.steps_done, self.reason_to_leave)
        return self.reason_to_leave is not None

    def _step(self, indices: NDArray[np.int64]) -> None:
        learning_rate = self._config.training.learning_rate(self.steps_done)
        metrics = self._learner.step(self._inputs.corpus.select(indices), learning_rate)
        self._unrecorded = {**metrics, "learning_rate": learning_rate}
        self.steps_done += 1
        self.accuracy = None

    def _evaluate_and_record(self) -> None:
        """Concludes a step, unless the run has to leave before its evaluation is done."""
        assert self._unrecorded is not None
        metrics, training = self._unrecorded, self._config.training
        due = self.steps_done % training.evaluate_every == 0 or self.steps_done == training.max_steps
        if due and self._config.evaluation.problems:
            try:
                self.accuracy = self._evaluate()
            except EvaluationStoppedError:
                return
            metrics = {**metrics, "accuracy": self.accuracy.share}
        self._unrecorded = None
        self._record(self.steps_done, metrics)

    def _evaluate(self) -> Accuracy:
        """Raises `EvaluationStoppedError` if the run has to leave meanwhile."""
        inputs, tokenizer = self._inputs, self._inputs.tokenizer
        result = evaluate(
            HFEngine(self._model, ResponseEnd.of(self._model, tokenizer)),
            inputs.task,
            tokenizer,
            self._config.evaluation,
            inputs.max_prompt_tokens,
            self._config.max_response_tokens,
            should_stop=self._has_to_leave,
        )
        return result.accuracy

    def _snapshot(self, steps: int, save_seconds: float) -> Snapshot:
        config_yaml, tensors = to_yaml(self._config), self._learner.copied_state()
        state = SftState(
            step=steps,
            demonstrations=len(self._inputs.corpus),
            accuracy=self.accuracy,
            unrecorded=self._unrecorded,
            save_seconds=save_seconds,
        )

        def fill(folder: Path) -> None:
            checkpoint = SftCheckpoint(folder)
            checkpoint.write_state(state, config_yaml, tensors)
            self._learner.save_pretrained(checkpoint.policy, tensors)

        return Snapshot(fill)


def _shuffled_batches(n: int, batch_size: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Indices of batch after batch, epoch after epoch, without end; the last batch of an epoch may be smaller. A run
    that goes on skips those that it has seen, which costs a permutation an epoch."""
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(n)
        yield from (order[start : start + batch_size] for start in range(0, n, batch_size))
