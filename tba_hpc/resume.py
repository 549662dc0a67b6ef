"""How an attempt of a run of reinforcement learning begins."""

from __future__ import annotations

from pathlib import Path

from tba_hpc.attempt import Beginning, changed_settings, refuse_changes
from tba_hpc.checkpoint import Checkpoint, CheckpointState, PromptState
from tba_hpc.config import RunConfig
from tba_hpc.prompts import PromptOrder
from tba_hpc.run_dir import RunDir
from tba_hpc.settings import ConfigError, PositiveInt, Settings, read_yaml, to_yaml, validate

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
    """Leaves the run's folder as this attempt needs it, and finds the checkpoint to go on from, as `Beginning.attempt`
    does. Returns None if the run has finished already.

    `n_prompts`: size of the training split. Raises `ConfigError`, and changes nothing, for a checkpoint that cannot be
    used, a setting that cannot change, and whatever `RunDir` refuses."""
    run_dir = RunDir(config.run_dir)
    finished = run_dir.finished_steps()
    attempt = Beginning(
        run_dir,
        to_yaml(config),
        models=config.model.paths,
        finished=finished is not None and finished >= config.trainer.steps,
        kind=Checkpoint,
        check=lambda checkpoint: _check_compatible(config, checkpoint, checkpoint.state(), n_prompts),
    ).attempt(resume, overwrite)
    if attempt is None:
        return None
    path = attempt.checkpoint.path if attempt.checkpoint else None
    return Start(config=config, attempt=attempt.number, checkpoint=path)


def _check_compatible(config: RunConfig, checkpoint: Checkpoint, state: CheckpointState, n_prompts: int) -> None:
    # What the checkpoint's configuration does not name, as settings were fewer when it was written, had its default.
    before = validate(RunConfig, read_yaml(checkpoint.config), str(checkpoint.config))
    fixed = [
        *_FIXED,
        *(_FIXED_IN_LOCKSTEP if config.in_lockstep else ()),
        *(_FIXED_IF_REUSE_IS_BOUNDED if config.trainer.max_reuse else ()),
    ]
    problems = changed_settings(before, config, fixed)
    if state.prompts.size != n_prompts:
        problems.append(f"the task had {state.prompts.size} training prompts and now has {n_prompts}")
    refuse_changes(checkpoint.path, problems)
    if state.step > config.trainer.steps:
        raise ConfigError(f"trainer.steps = {config.trainer.steps}, but the run has done {state.step} already")
    k = config.trainer.sync_every
    if config.in_lockstep and state.step % k and state.step < config.trainer.steps:
        raise ConfigError(
            f"trainer.steps = {config.trainer.steps}: a run with schedule = {config.schedule} that ended after step "
            f"{state.step}, between two syncs (trainer.sync_every = {k}), cannot be extended"
        )


def _divided(prompts: PromptState, seed: int, n_searchers: int) -> PromptState:
    """Among as many searchers as before the shares stay as they are; among others, what is left is divided anew."""
    if len(prompts.taken) == n_searchers:
        return prompts
    return PromptState.of(prompts.order(seed).after(prompts.taken), [0] * n_searchers)
