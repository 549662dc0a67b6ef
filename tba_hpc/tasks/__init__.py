"""The tasks by the name that a configuration calls them."""

from __future__ import annotations

import difflib
from typing import Any

from tba_hpc.config import TaskConfig
from tba_hpc.settings import ConfigError
from tba_hpc.tasks.arithmetic import Arithmetic
from tba_hpc.tasks.base import Score, Split, Task

TASKS: dict[str, type[Task[Any]]] = {
    "arithmetic": Arithmetic,
}

__all__ = ["TASKS", "Score", "Split", "Task", "make_task"]


def make_task(config: TaskConfig) -> Task[Any]:
    """The task that `config` names. Raises `ConfigError` for a name or an option that does not exist."""
    if config.name not in TASKS:
        close = difflib.get_close_matches(config.name, TASKS, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
        raise ConfigError(f"task.name = {config.name!r}: no such task; {hint}there are: {', '.join(sorted(TASKS))}")
    return TASKS[config.name](config.options)
