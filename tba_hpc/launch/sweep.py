"""The runs of a sweep."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tba_hpc.launch.overrides import yaml_text
from tba_hpc.settings import ConfigError

Grid = Mapping[str, Sequence[Any]]
"""The values to try of each setting."""


def sweep_points(grid: Grid, parent: Path) -> list[dict[str, Any]]:
    """The settings of each combination of the values in `grid`, in the order of `itertools.product`, and a `run_dir`
    below `parent` that is named after them.

    Raises `ConfigError` for a grid without values, and if two combinations would share a `run_dir`."""
    _check(grid)
    names = _short_names(list(grid))
    points: dict[Path, dict[str, Any]] = {}
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        run_dir = parent / ",".join(f"{names[key]}={_in_a_file_name(value)}" for key, value in point.items())
        if run_dir in points:
            raise ConfigError(f"two runs of the sweep would share run_dir = {str(run_dir)!r}")
        points[run_dir] = {**point, "run_dir": str(run_dir)}
    return list(points.values())


def _check(grid: Grid) -> None:
    if not grid:
        raise ConfigError("the grid of a sweep is empty: give at least one setting with its values")
    for key, values in grid.items():
        if isinstance(values, str) or not values:
            raise ConfigError(f"grid {key} = {values!r}: give a list of at least one value")
    if "run_dir" in grid:
        raise ConfigError("grid run_dir: each run of a sweep has a run_dir of its own, named after its settings")


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last parts of dotted paths where these tell them apart, else the whole."""
    last = {key: key.rpartition(".")[2] for key in keys}
    return last if len(set(last.values())) == len(keys) else {key: key for key in keys}


def _in_a_file_name(value: Any) -> str:
    return re.sub(r"[^\w.+-]+", "_", yaml_text(value)).strip("_")
