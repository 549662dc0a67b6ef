"""Computer algebra in a process of its own, which may take too long, too much memory, or die."""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_GRACE_SECONDS = 0.5
"""After which a worker that should have stopped by itself is killed."""
_OF_A_RANK = re.compile(r"(?:PMI|PMIX|PALS|OMPI|PRTE|MPI|MPICH|MPIR|I_MPI|MV2|HYDRA|HYDI|SLURM|SLURMD|SRUN)_")


@dataclass(frozen=True, slots=True)
class Reply:
    equal: bool
    why: str


class Algebra:
    """One worker, started when there is something to ask and again after it was killed. For one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._unread = b""

    @property
    def pid(self) -> int | None:
        """Of the worker; None while there is none."""
        return None if self._process is None else self._process.pid

    def ready(self, seconds: float) -> bool:
        """Whether a worker is ready, or becomes so within `seconds`. Raises `RuntimeError` if none can be started."""
        if self._process is not None and self._process.poll() is not None and self._ready:
            self.close()  # it has died between two questions
        if self._process is None:
            self._process = _started()
        if not self._ready:
            self._ready = bool(self._read_line(seconds))
        if not self._ready and (code := self._process.poll()) is not None:
            self.close()
            raise RuntimeError(f"the grading worker ended with exit code {code} before it was ready; see its messages")
        return self._ready

    def equal(self, given: str, right: str, seconds: float) -> Reply:
        """Whether two formulas in LaTeX are equal, asked of a worker that is ready. No answer in time is a no."""
        assert self._process is not None
        assert self._process.stdin is not None
        question = json.dumps({"given": given, "right": right, "seconds": seconds})
        try:
            self._process.stdin.write(question.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.close()
            return Reply(False, "the grading worker died")
        line = self._read_line(seconds + _GRACE_SECONDS)
        if not line:
            died = self._process.poll() is not None
            self.close()
            return Reply(False, "the grading worker died" if died else f"algebra took more than {seconds:.1f} s")
        return Reply(**json.loads(line))

    def close(self) -> None:
        """Kills the worker, if any; the next question starts another."""
        process, self._process = self._process, None
        self._ready, self._unread = False, b""
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()

    def _read_line(self, seconds: float) -> bytes:
        """Empty if none has come by then, or will come."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline, pipe = time.monotonic() + seconds, self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    return b""
                if not (chunk := os.read(pipe, 65536)):
                    self._process.wait()
                    return b""
                self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what would make the worker a rank; with this package on its path."""
    kept = {key: value for key, value in environment.items() if not _OF_A_RANK.match(key)}
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([package, *filter(None, [kept.get("PYTHONPATH")])])
    return kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def _started() -> subprocess.Popen[bytes]:
    # A new program, never a fork of this process, which has MPI in it. -P: not the working directory's modules.
    words = [sys.executable, "-P", "-m", "tba_hpc.grading.worker"]
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=worker_environment(os.environ), bufsize=0
    )
