"""The wiring of fine-tuning, from the configuration to the saved model."""

from __future__ import annotations

import json
import logging
import os
from contextlib import closing

from rich.console import Console
from transformers.utils.logging import disable_progress_bar

from tba_hpc.attempt import Attempt
from tba_hpc.config import SftConfig
from tba_hpc.interruption import SAVED_EXIT_CODE, Interruption, job_deadline
from tba_hpc.metrics import MetricsWriter
from tba_hpc.progress import Columns, ProgressDisplay
from tba_hpc.run_dir import RunDir
from tba_hpc.run_lock import RunLock
from tba_hpc.sft.checkpoint import SftCheckpoint, SftState, begin_sft
from tba_hpc.sft.inputs import SftInputs, read_inputs
from tba_hpc.sft.learner import SftLearner
from tba_hpc.sft.training import SftTraining

logger = logging.getLogger(__name__)

COLUMNS: Columns = (
    ("loss", "loss", ".4f"),
    ("grad_norm", "gradient", ".3g"),
    ("learning_rate", "learning rate", ".2e"),
    ("accuracy", "accuracy", ".1%"),
)


def run_sft(
    config: SftConfig, interruption: Interruption, console: Console, resume: str | None = None, overwrite: bool = False
) -> int:
    """Fine-tunes, saves the model to `run_dir/final`, and returns the exit code: `SAVED_EXIT_CODE` where the run has
    been interrupted and is to go on. The same configuration gives the same model, on the same machine and number of
    threads, however often it was interrupted.

    The metrics of every step go to `metrics.jsonl` and TensorBoard: `loss` (mean cross-entropy in nats a token),
    `grad_norm`, `learning_rate`, and where an evaluation followed, `accuracy`. Raises `ConfigError`, and changes
    nothing, for inputs or a run directory that will not do."""
    inputs, run_dir, lock = read_inputs(config), RunDir(config.run_dir), RunLock(config.run_dir)
    if run_dir.config.exists():
        lock.acquire()
    attempt = begin_sft(config, len(inputs.corpus), resume, overwrite)
    if attempt is None:
        _say(console, f"the run in {config.run_dir} has finished, with {run_dir.finished_steps()} steps")
        return 0
    lock.acquire()
    run_dir.log_to_file(0, "sft", attempt.number)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # one for each save would tear the run's own display
    if attempt.checkpoint:
        _say(console, f"going on from {attempt.checkpoint.path}")
    return _run(inputs, attempt, run_dir, interruption, console)


def _run(
    inputs: SftInputs,
    attempt: Attempt[SftCheckpoint],
    run_dir: RunDir,
    interruption: Interruption,
    console: Console,
) -> int:
    config, model = inputs.config, inputs.load_model()
    learner = SftLearner(config, model, inputs.tokenizer)
    state: SftState | None = None
    if attempt.checkpoint:
        state = attempt.checkpoint.state()
        learner.load_state(attempt.checkpoint.tensors())
    recorded = state.recorded_steps if state else 0
    display = ProgressDisplay(console, "step", config.training.max_steps, COLUMNS, recorded)
    shown: dict[str, float] = {}
    deadline = job_deadline(interruption, config.launch.walltime_seconds, config.launch.save_before_end, os.environ)
    with closing(MetricsWriter(run_dir, recorded)) as writer, display:

        def record(steps: int, metrics: dict[str, float]) -> None:
            writer.scalars(steps, metrics)
            shown.update(metrics)  # the accuracy stays until there is a new one
            display.update(steps, shown)

        training = SftTraining(
            inputs,
            model,
            learner,
            run_dir.checkpoints,
            state,
            record,
            interruption,
            deadline,
            is_superseded=lambda: run_dir.latest_attempt > attempt.number,
        )
        training.run()
    if training.reason_to_leave:
        reason = training.reason_to_leave
        _say(console, f"saved after step {training.steps_done} ({reason}); --resume auto goes on")
        return SAVED_EXIT_CODE
    learner.save_pretrained(run_dir.final)
    _report(training, run_dir, console)
    return 0


def _report(training: SftTraining, run_dir: RunDir, console: Console) -> None:
    """What is written last marks the run as finished."""
    accuracy = training.accuracy
    report = {
        "steps": training.steps_done,
        "accuracy": accuracy.share if accuracy else None,
        "interval": accuracy.interval if accuracy else None,
        "problems": accuracy.problems if accuracy else 0,
    }
    run_dir.write_report(json.dumps(report, indent=2))
    said = f"{accuracy.share:.1%} greedy accuracy; " if accuracy else ""
    _say(console, f"{said}saved in {run_dir.final} after {training.steps_done} steps")


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, markup=False)
    logger.info(text)
