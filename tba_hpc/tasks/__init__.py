"""The tasks by the name that a configuration calls them."""

from __future__ import annotations

from typing import Any

from tba_hpc.config import TaskConfig
from tba_hpc.settings import ConfigError, did_you_mean
from tba_hpc.tasks.arithmetic import Arithmetic
from tba_hpc.tasks.base import Score, Split, Task
from tba_hpc.tasks.countdown import Countdown
from tba_hpc.tasks.gsm8k import Gsm8k
from tba_hpc.tasks.hendrycks_math import HendrycksMath
from tba_hpc.tasks.lookup import load_from_file, load_offered, offered_tasks

TASKS: dict[str, type[Task[Any]]] = {
    "arithmetic": Arithmetic,
    "countdown": Countdown,
    "gsm8k": Gsm8k,
    "hendrycks_math": HendrycksMath,
}

__all__ = ["TASKS", "Score", "Split", "Task", "make_task"]


def make_task(config: TaskConfig) -> Task[Any]:
    """The task that `config` names. Raises `ConfigError` for a name or an option that does not exist, and for a user's
    task that cannot be loaded."""
    return _task_class(config)(config.options)


def _task_class(config: TaskConfig) -> type[Task[Any]]:
    if config.path is not None:
        return load_from_file(config.path, config.name)
    if config.name in TASKS:
        return TASKS[config.name]
    offered = offered_tasks()
    if config.name in offered:
        return load_offered(offered[config.name])
    known = did_you_mean(config.name, {*TASKS, *offered})
    raise ConfigError(
        f"task.name = {config.name!r}: no such task; {known} (for a task of your own, give its file as task.path)"
    )
