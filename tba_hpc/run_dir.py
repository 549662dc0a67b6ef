"""The files of a run and where they are."""

from __future__ import annotations

import json
import logging
import math
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tba_hpc.settings import ConfigError
from tba_hpc.stable_storage import replace_file

_MARK = "# The resolved configuration of the run in this folder, written by tba-hpc.\n"
"""First line of a run's configuration. Only where it stands were the files around it written by a run."""
_ATTEMPT = re.compile(r"\.attempt_(\d+)\.log$")


class RunDir:
    """Names every file that a run writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.evaluations = path / "evaluations.jsonl"
        self.tensorboard = path / "tensorboard"
        self.logs = path / "logs"
        self.segments = path / "buffer"
        self.checkpoints = path / "checkpoints"
        self.final = path / "final"
        self.report = path / "report.json"

    def prepare(self, config_yaml: str, overwrite: bool, models: Iterable[str] = (), keep_logs: bool = False) -> None:
        """Makes the folder, without the files of an earlier run (but with its logs, if they are to be kept), and writes
        the resolved configuration.

        Raises `ConfigError` if results are there already that must not be overwritten, or that no run has written; if
        one of the `models` that the run starts from would be deleted; or if the folder cannot be written."""
        try:
            self._keep_models(models)
            self._keep_results(overwrite)
            if self._is_of_a_run():
                self._clear(keep_logs)
            self._write_config(config_yaml)
        except OSError as error:
            raise self._unwritable(error) from error

    def go_on(self, config_yaml: str, steps_done: int) -> None:
        """Makes the folder that of a run which goes on after so many steps: without what an attempt that died wrote of
        later ones. Checkpoints stay, and so do logs and TensorBoard's files. Raises `ConfigError`."""
        try:
            self._keep_metrics(steps_done)
            self.report.unlink(missing_ok=True)
            shutil.rmtree(self.final, ignore_errors=True)
            self._clear_segments()
            self._write_config(config_yaml)
        except OSError as error:
            raise self._unwritable(error) from error

    def _keep_metrics(self, steps_done: int) -> None:
        """Drops what was written of later steps, and a last line that was cut off."""
        for file in (self.metrics, self.evaluations):
            if file.exists():
                lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
                replace_file(file, "".join(line for line in lines if _step_of(line) <= steps_done))

    def _write_config(self, config_yaml: str) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        replace_file(self.config, _MARK + config_yaml)

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(f"run_dir = {str(self.path)!r} cannot be written: {error.strerror or error}")

    def _keep_models(self, models: Iterable[str]) -> None:
        for model in models:
            for folder in (self.final, self.segments, self.checkpoints, self.tensorboard, self.logs):
                if Path(model).resolve().is_relative_to(folder.resolve()):
                    raise ConfigError(
                        f"the model at {model!r} lies in {folder}, which belongs to the run that would start from it; "
                        "give another run_dir"
                    )

    def _keep_results(self, overwrite: bool) -> None:
        found = [file.name for file in (self.metrics, self.report, self.final) if file.exists()]
        found += [
            folder.name for folder in (self.segments, self.checkpoints) if folder.exists() and any(folder.iterdir())
        ]
        if not self._is_of_a_run():
            found += [self.config.name] if self.config.exists() else []
            if found:
                raise ConfigError(
                    f"run_dir = {str(self.path)!r} holds {', '.join(found)}, not written by a training run; "
                    "give another run_dir, or move that away"
                )
        elif found and not overwrite:
            raise ConfigError(
                f"run_dir = {str(self.path)!r} already holds a run ({', '.join(found)}); "
                "--resume auto goes on with it, --overwrite deletes it; or give another run_dir"
            )

    def _is_of_a_run(self) -> bool:
        if not self.config.exists():
            return False
        with self.config.open(encoding="utf-8", errors="replace") as file:
            return file.readline() == _MARK

    def _clear(self, keep_logs: bool) -> None:
        """Removes what an earlier run wrote, and nothing else; its configuration, which tells that it did, stays."""
        for file in (self.metrics, self.evaluations, self.report):
            file.unlink(missing_ok=True)
        for folder in (self.final, *self.checkpoints.glob("step_*")):
            if folder.exists():
                shutil.rmtree(folder)
        _remove_if_empty(self.checkpoints)
        _remove(self.tensorboard, "events.out.tfevents.*")
        if not keep_logs:
            _remove(self.logs, "rank_*.log")
        self._clear_segments()

    def _clear_segments(self) -> None:
        for folder in self.segments.glob("attempt_*"):
            _remove(folder, "segment-*.h5*")
        _remove_if_empty(self.segments)

    @property
    def latest_attempt(self) -> int:
        """Number of the last attempt that has begun; 0 where there was none."""
        numbers = (_ATTEMPT.search(file.name) for file in self.logs.glob("rank_*.log"))
        return max((int(number[1]) for number in numbers if number), default=0)

    def begin_attempt(self) -> int:
        """Number of a new attempt, of which earlier ones that might still be running can now tell."""
        attempt = self.latest_attempt + 1
        self.logs.mkdir(parents=True, exist_ok=True)
        self._log(0, attempt).touch()
        return attempt

    def _log(self, rank: int, attempt: int) -> Path:
        return self.logs / f"rank_{rank}.attempt_{attempt}.log"

    def segments_of(self, attempt: int) -> Path:
        """Where an attempt keeps the segments of its replay buffer: no two of them write to the same folder."""
        return self.segments / f"attempt_{attempt}"

    def log_to_file(self, rank: int, name: str, attempt: int) -> None:
        """Sends this process's log to `logs/rank_N.attempt_M.log`."""
        # Rank 0 has made the folder, but another node may not see it yet on a network file system.
        self.logs.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(self._log(rank, attempt), encoding="utf-8")
        handler.setFormatter(logging.Formatter(f"%(asctime)s {name} %(levelname)s %(name)s: %(message)s"))
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(logging.INFO)

    def finished_steps(self) -> int | None:
        """Optimizer steps of the run, if it has come to its end."""
        try:
            return int(self.read_report()["steps"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def read_report(self) -> dict[str, Any]:
        """Raises `OSError` where there is none, and `ValueError` for one that is not JSON."""
        report: dict[str, Any] = json.loads(self.report.read_text(encoding="utf-8"))
        return report

    def write_report(self, text: str) -> None:
        replace_file(self.report, text + "\n")


def _step_of(line: str) -> float:
    """Of a line of metrics; infinite for one that was cut off."""
    if not line.endswith("\n"):
        return math.inf
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _remove(folder: Path, pattern: str) -> None:
    """Removes files, and the folder if nothing is left in it."""
    for file in folder.glob(pattern):
        file.unlink()
    _remove_if_empty(folder)


def _remove_if_empty(folder: Path) -> None:
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()
