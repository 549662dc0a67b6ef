"""Tasks that are not the package's own: from a user's file, or from an installed package."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from tba_hpc.settings import ConfigError, did_you_mean
from tba_hpc.tasks.base import Task

GROUP = "tba_hpc.tasks"
"""Of the entry points by which an installed package offers tasks."""


def offered_tasks() -> dict[str, EntryPoint]:
    """By the names that configurations call them."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def load_offered(entry: EntryPoint) -> type[Task[Any]]:
    """Raises `ConfigError` for an entry point that is broken or no task."""
    where = f"entry point {entry.name!r} ({entry.value})"
    try:
        loaded = entry.load()
    except Exception as error:  # whatever the code of others raises while it is imported
        raise ConfigError(f"task.name = {entry.name!r}: {where} cannot be loaded: {_named(error)}") from error
    return _checked(loaded, where)


def load_from_file(path: Path, name: str) -> type[Task[Any]]:
    """The class `name` of a Python file. Raises `ConfigError` for a file that is not there or fails, and for a class
    that is not in it or no task."""
    module = _run(path)
    if name not in vars(module):
        tasks = [key for key, value in vars(module).items() if _is_task(value) and value.__module__ == module.__name__]
        hint = did_you_mean(name, tasks) if tasks else "there is no task in it"
        raise ConfigError(f"task.name = {name!r}: {path} has no such class; {hint}")
    return _checked(getattr(module, name), f"{name} of {path}")


def _run(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"task.path: there is no file {path}")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(f"_tba_hpc_task_{digest}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"task.path: {path} is not a Python file: its name has to end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pydantic look the annotations of a class up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a user's file raises; a script may end with sys.exit
        del sys.modules[spec.name]
        raise ConfigError(f"task.path: {path} fails{_line(error, path)}: {_named(error)}") from error
    return module


def _line(error: BaseException, path: Path) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return f" in line {lines[-1]}" if lines else ""


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _is_task(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Task)


def _checked(loaded: Any, where: str) -> type[Task[Any]]:
    if not _is_task(loaded):
        raise ConfigError(f"{where} is not a subclass of tba_hpc.tasks.Task")
    if missing := sorted(getattr(loaded, "__abstractmethods__", ())):
        raise ConfigError(f"{where} is no whole task: it lacks {', '.join(missing)}")
    task: type[Task[Any]] = loaded
    return task
