"""Waiting with a bound and without spinning a core."""

from __future__ import annotations

import time
from collections.abc import Callable

_FIRST_PAUSE = 50e-6
_GROWTH = 1.5


def wait_until(done: Callable[[], bool], seconds: float, longest_pause: float = 2e-3) -> bool:
    """Polls `done` with growing pauses, as no MPI moves a nonblocking operation by itself and `Wait` would spin a core.

    Returns whether `done` became true within `seconds`. It is asked at least once."""
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(pause * _GROWTH, longest_pause)
    return True
