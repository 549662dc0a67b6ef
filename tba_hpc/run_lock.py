"""One run directory, one run."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from tba_hpc.settings import ConfigError

logger = logging.getLogger(__name__)
_HELD = (errno.EACCES, errno.EAGAIN)


class RunLock:
    """Held from `acquire` until this object, or its process, is gone."""

    def __init__(self, run_dir: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._path = run_dir / "lock"
        self._job = environment.get("SLURM_JOB_ID")
        self._file: TextIO | None = None

    def acquire(self) -> None:
        """Raises `ConfigError`, naming who has it, where another run is writing to the directory. A second call does
        nothing, and neither does any on a file system without locks.

        An earlier attempt of the same job does not count: of a node that died, a file server may keep the lock."""
        if self._file is not None:
            return
        try:
            file = self._path.open("a+", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"run_dir = {str(self._path.parent)!r} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            owner = file.read().strip()
            if error.errno in _HELD and not self._is_ours(owner):
                raise ConfigError(
                    f"{self._path.parent} is in use by a run ({owner}); give another run_dir. If that run is gone, "
                    f"remove {self._path}"
                ) from error
            logger.warning("%s is not locked: %s", self._path.parent, error.strerror)
            return
        file.truncate(0)
        file.write(f"{self._own_name()}\n")
        file.flush()
        self._file = file

    def _is_ours(self, owner: str) -> bool:
        return self._job is not None and owner.startswith(f"job {self._job},")

    def _own_name(self) -> str:
        job = f"job {self._job}, " if self._job else ""
        return f"{job}process {os.getpid()} on {socket.gethostname()}"
