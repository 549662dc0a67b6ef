"""The process that has started a launcher and stays beside it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tba_hpc.interruption import SIGNALS
from tba_hpc.settings import ConfigError

_FORWARDED = signal.SIGUSR1
"""The one signal that both srun and MPICH's mpiexec hand on to their ranks."""
_START_UP_SECONDS = 10.0
_POLL_SECONDS = 1.0
_END_SECONDS = 10.0


def supervise(words: Sequence[str], environment: Mapping[str, str], start_up_seconds: float = _START_UP_SECONDS) -> int:
    """Runs the launcher `words` to its end and returns its exit code, 128 + n if signal n ended it.

    Waits for the launcher without a bound of its own: ranks have theirs, and the job its time limit. Each of `SIGNALS`
    that comes meanwhile is handed on to the launcher as a request to save; one that comes within `start_up_seconds` of
    the start is kept until then, as it would end a launcher or a rank that has no handler yet. For the main thread.
    Raises `ConfigError` if the launcher cannot be started; whatever else is raised ends it first."""
    requests: list[int] = []
    with _handled(lambda number, _: requests.append(number)):
        try:
            launcher = subprocess.Popen(words, env=environment)
        except OSError as error:
            raise ConfigError(f"cannot start the launcher {words[0]!r}: {error.strerror}") from error
        ready = time.monotonic() + start_up_seconds
        try:
            while (code := _ended(launcher)) is None:
                if requests and time.monotonic() >= ready:
                    requests.clear()
                    launcher.send_signal(_FORWARDED)
        except BaseException:
            _end(launcher)
            raise
    return code if code >= 0 else 128 - code


@contextmanager
def _handled(handler: Callable[[int, Any], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier or signal.SIG_DFL)


def _ended(launcher: subprocess.Popen[bytes]) -> int | None:
    try:
        return launcher.wait(_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _end(launcher: subprocess.Popen[bytes]) -> None:
    launcher.terminate()
    try:
        launcher.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()
