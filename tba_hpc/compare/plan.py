"""Which runs a comparison consists of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tba_hpc.config import RunConfig, load_run_config
from tba_hpc.settings import ConfigError


@dataclass(frozen=True, slots=True)
class Variant:
    """What is compared: all else is the same."""

    objective: str
    schedule: str

    @property
    def name(self) -> str:
        return f"{self.objective}:{self.schedule}"


@dataclass(frozen=True, slots=True)
class PlannedRun:
    variant: Variant
    seed: int
    config: RunConfig
    overrides: tuple[str, ...]
    """That make the configuration file that one."""

    @property
    def run_dir(self) -> Path:
        return self.config.run_dir


def variants(objectives: Sequence[str], schedules: Sequence[str]) -> list[Variant]:
    """Each objective with each schedule; one written `grpo:synchronous` with that schedule alone. Raises `ConfigError`
    for an objective without any schedule."""
    found: dict[Variant, None] = {}
    for word in objectives:
        objective, colon, own = word.partition(":")
        if not colon and not schedules:
            raise ConfigError(f"which schedule is {word!r} to be run with? Give --schedules, or {word}:synchronous")
        found |= dict.fromkeys(Variant(objective, schedule) for schedule in ([own] if colon else schedules))
    if not found:
        raise ConfigError("nothing to compare: give --objectives")
    return list(found)


def plan(
    config: Path,
    compared: Sequence[Variant],
    seeds: Sequence[int],
    folder: Path,
    ranks: int,
    overrides: Sequence[str],
) -> list[PlannedRun]:
    """All runs, seed after seed, so that what is there after an hour can be compared already. Raises `ConfigError` for
    the first that cannot be run so, or that would not be evaluated during training."""
    runs = []
    for seed in seeds:
        for variant in compared:
            run_dir = folder / variant.name.replace(":", ".") / f"seed={seed}"
            own = (
                *overrides,
                f"objective.name={variant.objective}",
                f"schedule={variant.schedule}",
                f"seed={seed}",
                f"run_dir={json.dumps(str(run_dir))}",
            )
            settings = load_run_config(config, list(own))
            settings.check_world(ranks)
            runs.append(PlannedRun(variant, seed, settings, own))
    if runs and runs[0].config.evaluation.every_steps is None:
        raise ConfigError("a comparison needs accuracies during training: set evaluation.every_steps")
    return runs
