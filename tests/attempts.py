"""Runs of several attempts each, as the program `several_runs` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Attempt = tuple[int, Sequence[str], Mapping[str, Any]]
"""Ranks, settings, and how it is interrupted or resumed."""


def planned(runs: Mapping[str, Sequence[Attempt]], folder: Path, common: Sequence[str]) -> list[dict[str, Any]]:
    """All attempts of `runs` by name, one after the other; each run has the folder of its name, and goes on by itself
    where nothing else is said. A checkpoint to go on from is one of the run's own."""
    plan = [
        {"ranks": ranks, "run_dir": str(folder / name), "overrides": [*common, *overrides], "resume": "auto", **how}
        for name, attempts in runs.items()
        for ranks, overrides, how in attempts
    ]
    for attempt in plan:
        if attempt["resume"] != "auto":
            attempt["resume"] = f"{attempt['run_dir']}/{attempt['resume']}"
    return plan
