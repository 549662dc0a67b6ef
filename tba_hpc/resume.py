"""How an attempt of a run begins: afresh, or with a checkpoint of an earlier one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tba_hpc.checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointState,
    PromptState,
    adopt_checkpoint,
    clear_leftovers,
    is_checkpoint_name,
    newest_checkpoint,
    set_aside_newer,
    verify_checkpoint,
)
from tba_hpc.config import RunConfig
from tba_hpc.prompts import PromptOrder
from tba_hpc.run_dir import RunDir
from tba_hpc.settings import ConfigError, PositiveInt, Settings, read_yaml, to_yaml, validate

AUTO = "auto"
"""Go on from the newest checkpoint of the run, if there is one."""

_FIXED = (
    "seed",
    "schedule",
    "model.path",
    "model.reference",
    "model.dtype",
    "task.name",
    "task.path",
    "task.options",
    "rollout.temperature",
    "objective.name",
    "trainer.engine",
    "buffer.deduplicate",
)
"""What cannot change without making the trajectories held, or the state of training, those of another run."""
_FIXED_IN_LOCKSTEP = ("trainer.sync_every", "trainer.lag")
_FIXED_IF_REUSE_IS_BOUNDED = ("trainer.batch_size",)


class Start(Settings):
    """How this attempt begins, as rank 0 has found out for all ranks."""

    config: RunConfig
    attempt: PositiveInt
    """1 for a run's first."""
    checkpoint: Path | None

    def open(self) -> Checkpoint | None:
        """What the run goes on from."""
        return Checkpoint(self.checkpoint) if self.checkpoint else None

    def state(self, n_prompts: int, n_searchers: int) -> CheckpointState:
        """Where the run stands, with its `n_prompts` training prompts divided among so many searchers."""
        seed, checkpoint = self.config.seed, self.open()
        if checkpoint is None:
            return CheckpointState.of_new_run(PromptState.of(PromptOrder.of(n_prompts, seed), [0] * n_searchers))
        state = checkpoint.state()
        return state.model_copy(update={"prompts": _divided(state.prompts, seed, n_searchers)})


def prepare_start(config: RunConfig, resume: str | None, overwrite: bool, n_prompts: int) -> Start | None:
    """Finds the checkpoint to go on from, if one is asked for, and leaves the run's folder as this attempt needs it.
    `resume` is `AUTO`, a checkpoint's folder, or None for a fresh start. Returns None if the run has finished already.

    `n_prompts`: size of the training split. Raises `ConfigError`, and changes nothing, for a checkpoint that cannot be
    used, a setting that cannot change, and whatever `RunDir` refuses."""
    try:
        return _prepare_start(config, RunDir(config.run_dir), resume, overwrite, n_prompts)
    except CheckpointError as error:
        raise ConfigError(f"--resume {resume}: {error}") from error
    except OSError as error:
        raise ConfigError(f"run_dir = {str(config.run_dir)!r} cannot be prepared: {error}") from error


def _prepare_start(
    config: RunConfig, run_dir: RunDir, resume: str | None, overwrite: bool, n_prompts: int
) -> Start | None:
    finished = run_dir.finished_steps()
    if resume == AUTO and finished is not None and finished >= config.trainer.steps:
        return None
    checkpoint = _find(run_dir, resume)
    if checkpoint is None:
        return _begin(config, run_dir, resume, overwrite)
    state = checkpoint.state()
    _check_compatible(config, checkpoint, state, n_prompts)
    if checkpoint.path.parent != run_dir.checkpoints.resolve():
        return _begin(config, run_dir, resume, overwrite, checkpoint)
    attempt = run_dir.begin_attempt()
    clear_leftovers(run_dir.checkpoints)
    set_aside_newer(run_dir.checkpoints, checkpoint.path)
    run_dir.go_on(to_yaml(config), state.step)
    return Start(config=config, attempt=attempt, checkpoint=checkpoint.path)


def _find(run_dir: RunDir, resume: str | None) -> Checkpoint | None:
    """Its path is absolute, without links. Raises `CheckpointError`, and `ConfigError` for one of the run's own that it
    would not find again."""
    if resume is None:
        return None
    if resume == AUTO:
        return newest_checkpoint(run_dir.checkpoints.resolve())
    path = Path(resume).resolve()
    if path.parent == run_dir.checkpoints.resolve() and path.exists() and not is_checkpoint_name(path.name):
        raise ConfigError(f"--resume {resume}: give it a name like step_00000100 first, or step_00000100.2")
    try:
        return verify_checkpoint(path)
    except CheckpointError as error:
        hint = "give auto, or a folder like RUN_DIR/checkpoints/step_00000100"
        raise CheckpointError(f"{error}; {hint}") from error


def _begin(
    config: RunConfig, run_dir: RunDir, resume: str | None, overwrite: bool, checkpoint: Checkpoint | None = None
) -> Start:
    """The first attempt of a run, or the first after others that came to nothing; with another run's checkpoint, if one
    is given. Raises `ConfigError` for a finished run of which only the checkpoints are gone."""
    again = resume == AUTO
    if again and run_dir.report.exists():
        raise ConfigError(
            f"run_dir = {str(run_dir.path)!r} holds a finished run but none of its checkpoints to go on from"
        )
    run_dir.prepare(to_yaml(config), overwrite or again, config.model.paths, keep_logs=again)
    adopted = adopt_checkpoint(run_dir.checkpoints.resolve(), checkpoint) if checkpoint else None
    return Start(config=config, attempt=run_dir.begin_attempt(), checkpoint=adopted)


def _check_compatible(config: RunConfig, checkpoint: Checkpoint, state: CheckpointState, n_prompts: int) -> None:
    # What the checkpoint's configuration does not name, as settings were fewer when it was written, had its default.
    before = validate(RunConfig, read_yaml(checkpoint.config), str(checkpoint.config))
    saved, now = before.model_dump(mode="json"), config.model_dump(mode="json")
    fixed = [
        *_FIXED,
        *(_FIXED_IN_LOCKSTEP if config.in_lockstep else ()),
        *(_FIXED_IF_REUSE_IS_BOUNDED if config.trainer.max_reuse else ()),
    ]
    problems = [
        f"{key} was {_at(saved, key)!r} and is now {_at(now, key)!r}"
        for key in fixed
        if _at(saved, key) != _at(now, key)
    ]
    if state.prompts.size != n_prompts:
        problems.append(f"the task had {state.prompts.size} training prompts and now has {n_prompts}")
    if problems:
        raise ConfigError(
            "\n  ".join([f"the run cannot go on from {checkpoint.path} with other settings than these:", *problems])
            + "\nset them back, or start another run in another run_dir, without --resume"
        )
    if state.step > config.trainer.steps:
        raise ConfigError(f"trainer.steps = {config.trainer.steps}, but the run has done {state.step} already")
    k = config.trainer.sync_every
    if config.in_lockstep and state.step % k and state.step < config.trainer.steps:
        raise ConfigError(
            f"trainer.steps = {config.trainer.steps}: a run with schedule = {config.schedule} that ended after step "
            f"{state.step}, between two syncs (trainer.sync_every = {k}), cannot be extended"
        )


def _at(values: Any, key: str) -> Any:
    """The value at a dotted path; None where there is none."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _divided(prompts: PromptState, seed: int, n_searchers: int) -> PromptState:
    """Among as many searchers as before the shares stay as they are; among others, what is left is divided anew."""
    if len(prompts.taken) == n_searchers:
        return prompts
    return PromptState.of(prompts.order(seed).after(prompts.taken), [0] * n_searchers)
