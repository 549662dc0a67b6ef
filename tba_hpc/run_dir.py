"""The files of a run and where they are."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from pathlib import Path

from tba_hpc.settings import ConfigError

_MARK = "# The resolved configuration of the run in this folder, written by tba-hpc.\n"
"""First line of a run's configuration. Only where it stands were the files around it written by a run."""


class RunDir:
    """Names every file that a run writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.tensorboard = path / "tensorboard"
        self.logs = path / "logs"
        self.segments = path / "buffer"
        self.final = path / "final"
        self.report = path / "report.json"

    def prepare(self, config_yaml: str, overwrite: bool, models: Iterable[str] = ()) -> None:
        """Makes the folder, without the files of an earlier run, and writes the resolved configuration.

        Raises `ConfigError` if results are there already that must not be overwritten, or that no run has written; if
        one of the `models` that the run starts from would be deleted; or if the folder cannot be written."""
        try:
            self._keep_models(models)
            self._keep_results(overwrite)
            if self._is_of_a_run():
                self._clear()
            self.logs.mkdir(parents=True, exist_ok=True)
            self.config.write_text(_MARK + config_yaml, encoding="utf-8")
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"run_dir = {str(self.path)!r} cannot be written: {reason}") from error

    def _keep_models(self, models: Iterable[str]) -> None:
        for model in models:
            for folder in (self.final, self.segments, self.tensorboard, self.logs):
                if Path(model).resolve().is_relative_to(folder.resolve()):
                    raise ConfigError(
                        f"the model at {model!r} lies in {folder}, which belongs to the run that would start from it; "
                        "give another run_dir"
                    )

    def _keep_results(self, overwrite: bool) -> None:
        found = [file.name for file in (self.metrics, self.report, self.final) if file.exists()]
        if self.segments.exists() and any(self.segments.iterdir()):
            found.append(self.segments.name)
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
                "give another run_dir, or --overwrite to delete that run"
            )

    def _is_of_a_run(self) -> bool:
        if not self.config.exists():
            return False
        with self.config.open(encoding="utf-8", errors="replace") as file:
            return file.readline() == _MARK

    def _clear(self) -> None:
        """Removes what an earlier run wrote, and nothing else; its configuration, which tells that it did, stays."""
        for file in (self.metrics, self.report):
            file.unlink(missing_ok=True)
        if self.final.exists():
            shutil.rmtree(self.final)
        for folder, pattern in (
            (self.tensorboard, "events.out.tfevents.*"),
            (self.logs, "rank_*.log"),
            (self.segments, "segment-*.h5*"),
        ):
            for file in folder.glob(pattern):
                file.unlink()
            if folder.exists() and not any(folder.iterdir()):
                folder.rmdir()

    def log_to_file(self, rank: int, name: str) -> None:
        """Sends this process's log to `logs/rank_N.log`."""
        # Rank 0 has made the folder, but another node may not see it yet on a network file system.
        self.logs.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(self.logs / f"rank_{rank}.log", encoding="utf-8")
        handler.setFormatter(logging.Formatter(f"%(asctime)s {name} %(levelname)s %(name)s: %(message)s"))
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(logging.INFO)

    def write_report(self, text: str) -> None:
        self.report.write_text(text + "\n", encoding="utf-8")
