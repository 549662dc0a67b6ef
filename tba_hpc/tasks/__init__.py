"""The tasks by the name that a configuration calls them."""

from __future__ import annotations

from typing import Any

from tba_hpc.config import TaskConfig
from tba_hpc.settings import ConfigError, did_you_mean
from tba_hpc.tasks.arithmetic import Arithmetic
from tba_hpc.tasks.base import Score, Split, Task

TASKS: dict[str, type[Task[Any]]] = {
    "arithmetic": Arithmetic,
}

__all__ = ["TASKS", "Score", "Split", "Task", "make_task"]


def make_task(config: TaskConfig) -> Task[Any]:
    """The task that `config` names. Raises `ConfigError` for a name or an option that does not exist."""
    if config.name not in TASKS:
        raise ConfigError(f"task.name = {config.name!r}: no such task; {did_you_mean(config.name, TASKS)}")
    return TASKS[config.name](config.options)
