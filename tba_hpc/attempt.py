"""How an attempt of a run begins, whatever kind of run it is: afresh, or with a checkpoint of an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tba_hpc.checkpoint_folder import (
    CheckpointError,
    CheckpointFolder,
    adopt_checkpoint,
    clear_leftovers,
    is_checkpoint_name,
    newest,
    set_aside_newer,
    verify,
)
from tba_hpc.run_dir import RunDir
from tba_hpc.settings import ConfigError, Settings

AUTO = "auto"
"""Go on from the newest checkpoint of the run, if there is one."""

Folder = TypeVar("Folder", bound=CheckpointFolder[Any])


@dataclass(frozen=True, slots=True)
class Attempt(Generic[Folder]):
    """One start of a run."""

    number: int
    """1 for a run's first."""
    checkpoint: Folder | None
    """What the run goes on from."""


@dataclass(frozen=True, slots=True)
class Beginning(Generic[Folder]):
    """What has to be known of a run to begin an attempt of it."""

    run_dir: RunDir
    config_yaml: str
    """The resolved configuration."""
    models: Iterable[str]
    """Models that the run starts from, which may not lie where it writes."""
    finished: bool
    """Whether it has come to its end before."""
    kind: Callable[[Path], Folder]
    """The class of its checkpoints."""
    check: Callable[[Folder], None]
    """Raises `ConfigError` for a checkpoint that the run cannot go on from."""

    def attempt(self, resume: str | None, overwrite: bool) -> Attempt[Folder] | None:
        """Finds the checkpoint to go on from, if one is asked for, and leaves the run's folder as this attempt needs
        it. `resume` is `AUTO`, a checkpoint's folder, or None for a fresh start. Returns None if the run has finished
        already.

        Raises `ConfigError`, and changes nothing, for a checkpoint that cannot be used and whatever `RunDir`
        refuses."""
        if resume == AUTO and self.finished:
            return None
        try:
            return self._attempt(resume, overwrite)
        except CheckpointError as error:
            raise ConfigError(f"--resume {resume}: {error}") from error
        except OSError as error:
            raise ConfigError(f"run_dir = {str(self.run_dir.path)!r} cannot be prepared: {error}") from error

    def _attempt(self, resume: str | None, overwrite: bool) -> Attempt[Folder]:
        checkpoint = self._find(resume)
        if checkpoint is None:
            return self._begin(resume, overwrite)
        self.check(checkpoint)
        run_dir = self.run_dir
        if checkpoint.path.parent != run_dir.checkpoints.resolve():
            return self._begin(resume, overwrite, checkpoint)
        number = run_dir.begin_attempt()
        clear_leftovers(run_dir.checkpoints)
        set_aside_newer(run_dir.checkpoints, checkpoint.path)
        run_dir.go_on(self.config_yaml, checkpoint.state().recorded_steps)
        return Attempt(number, checkpoint)

    def _find(self, resume: str | None) -> Folder | None:
        """Its path is absolute, without links. Raises `CheckpointError`, and `ConfigError` for one of the run's own
        that it would not find again."""
        own = self.run_dir.checkpoints.resolve()
        if resume is None:
            return None
        if resume == AUTO:
            return newest(own, self.kind)
        path = Path(resume).resolve()
        if path.parent == own and path.exists() and not is_checkpoint_name(path.name):
            raise ConfigError(f"--resume {resume}: give it a name like step_00000100 first, or step_00000100.2")
        try:
            return verify(path, self.kind)
        except CheckpointError as error:
            hint = "give auto, or a folder like RUN_DIR/checkpoints/step_00000100"
            raise CheckpointError(f"{error}; {hint}") from error

    def _begin(self, resume: str | None, overwrite: bool, checkpoint: Folder | None = None) -> Attempt[Folder]:
        """The first attempt of a run, or the first after others that came to nothing; with another run's checkpoint, if
        one is given. Raises `ConfigError` for a finished run of which only the checkpoints are gone."""
        run_dir, again = self.run_dir, resume == AUTO
        if again and run_dir.report.exists():
            raise ConfigError(
                f"run_dir = {str(run_dir.path)!r} holds a finished run but none of its checkpoints to go on from"
            )
        run_dir.prepare(self.config_yaml, overwrite or again, self.models, keep_logs=again)
        adopted = self.kind(adopt_checkpoint(run_dir.checkpoints.resolve(), checkpoint)) if checkpoint else None
        return Attempt(run_dir.begin_attempt(), adopted)


def changed_settings(saved: Settings, now: Settings, fixed: Iterable[str]) -> list[str]:
    """A line for each of the settings `fixed`, by dotted path, that differs; with both values."""
    before, after = saved.model_dump(mode="json"), now.model_dump(mode="json")
    return [
        f"{key} was {_at(before, key)!r} and is now {_at(after, key)!r}"
        for key in fixed
        if _at(before, key) != _at(after, key)
    ]


def refuse_changes(checkpoint: Path, problems: list[str]) -> None:
    """Raises `ConfigError` if there are any: what would make of the run that wrote the checkpoint another one."""
    if problems:
        raise ConfigError(
            "\n  ".join([f"the run cannot go on from {checkpoint} with other settings than these:", *problems])
            + "\nset them back, or start another run in another run_dir, without --resume"
        )


def _at(values: Any, key: str) -> Any:
    """The value at a dotted path; None where there is none."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values
