"""The checkpoints of fine-tuning, and how an attempt of it begins with one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeFloat

from tba_hpc.accuracy import Accuracy
from tba_hpc.attempt import Attempt, Beginning, changed_settings, refuse_changes
from tba_hpc.checkpoint_folder import CheckpointFolder, SavedState
from tba_hpc.config import SftConfig
from tba_hpc.run_dir import RunDir
from tba_hpc.settings import ConfigError, PositiveInt, read_yaml, to_yaml, validate

_FIXED = (
    "seed",
    "init",
    "model.path",
    "model.dtype",
    "task.name",
    "task.path",
    "task.options",
    "training.batch_size",
)
"""What cannot change without making the state of training, or the order of the examples, that of another run."""

_Number = Annotated[float, Field(allow_inf_nan=True)]


class SftState(SavedState):
    """Where a run of fine-tuning stands."""

    demonstrations: PositiveInt
    """How many there are to learn from."""
    accuracy: Accuracy | None
    """Of the weights as they are; None if they have not been evaluated."""
    unrecorded: dict[str, _Number] | None
    """Metrics of the last step, if its evaluation was broken off: they are recorded when that has been made up for."""
    save_seconds: NonNegativeFloat
    """How long the save before this one took; 0 where there was none."""

    @property
    def recorded_steps(self) -> int:
        return self.step if self.unrecorded is None else self.step - 1


class SftCheckpoint(CheckpointFolder[SftState]):
    """A complete checkpoint of a run of fine-tuning."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SftState)


def begin_sft(
    config: SftConfig, n_demonstrations: int, resume: str | None, overwrite: bool
) -> Attempt[SftCheckpoint] | None:
    """Leaves the run's folder as this attempt needs it, and finds the checkpoint to go on from, as `Beginning.attempt`
    does. Returns None if the run has finished already. Raises `ConfigError`, and changes nothing, for a checkpoint that
    cannot be used, a setting that cannot change, and whatever `RunDir` refuses."""
    run_dir = RunDir(config.run_dir)
    return Beginning(
        run_dir,
        to_yaml(config),
        models=[config.model.path] if config.model else [],
        finished=_has_finished(config, run_dir),
        kind=SftCheckpoint,
        check=lambda checkpoint: _check_compatible(config, checkpoint, n_demonstrations),
    ).attempt(resume, overwrite)


def _has_finished(config: SftConfig, run_dir: RunDir) -> bool:
    """Whether an earlier attempt came to the end that the configuration now asks for."""
    steps = run_dir.finished_steps()
    if steps is None:
        return False
    accuracy = run_dir.read_report().get("accuracy") or 0.0
    return steps >= config.training.max_steps or accuracy >= config.training.stop_at_accuracy


def _check_compatible(config: SftConfig, checkpoint: SftCheckpoint, n_demonstrations: int) -> None:
    before, state = validate(SftConfig, read_yaml(checkpoint.config), str(checkpoint.config)), checkpoint.state()
    problems = changed_settings(before, config, _FIXED)
    if state.demonstrations != n_demonstrations:
        problems.append(f"there were {state.demonstrations} demonstrations and are now {n_demonstrations}")
    refuse_changes(checkpoint.path, problems)
    most = config.training.max_steps
    if state.step > most:
        raise ConfigError(f"training.max_steps = {most}, but the run has done {state.step} already")
