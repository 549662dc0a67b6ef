"""The files of a run and where they are."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from tba_hpc.settings import ConfigError


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

    def prepare(self, config_yaml: str, overwrite: bool) -> None:
        """Makes the folder and writes the resolved configuration. Raises `ConfigError` if a run is there already and
        must not be overwritten, or if the folder cannot be written."""
        try:
            if self.metrics.exists() and not overwrite:
                raise ConfigError(
                    f"run_dir = {str(self.path)!r} already holds a run; "
                    "give another run_dir, or --overwrite to delete that run"
                )
            self._clear()
            self.logs.mkdir(parents=True, exist_ok=True)
            self.config.write_text(config_yaml, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"run_dir = {str(self.path)!r} cannot be written: {error.strerror}") from error

    def _clear(self) -> None:
        """Removes what an earlier run wrote, and nothing else."""
        for file in (self.config, self.metrics, self.report):
            file.unlink(missing_ok=True)
        for folder in (self.tensorboard, self.logs, self.segments, self.final):
            if folder.exists():
                shutil.rmtree(folder)

    def log_to_file(self, rank: int, name: str) -> None:
        """Sends this process's log to `logs/rank_N.log`."""
        handler = logging.FileHandler(self.logs / f"rank_{rank}.log", encoding="utf-8")
        handler.setFormatter(logging.Formatter(f"%(asctime)s {name} %(levelname)s %(name)s: %(message)s"))
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(logging.INFO)

    def write_report(self, text: str) -> None:
        self.report.write_text(text + "\n", encoding="utf-8")
