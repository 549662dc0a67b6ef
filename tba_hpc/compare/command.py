"""Runs what is to be compared, one run after the other, and reports on it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tba_hpc.compare.plan import PlannedRun
from tba_hpc.compare.results import RunResult, read_result
from tba_hpc.compare.summary import default_target, summarise, table, to_json
from tba_hpc.config import load_run_config
from tba_hpc.interruption import SAVED_EXIT_CODE
from tba_hpc.launch.command import rank_command
from tba_hpc.launch.local import local_environment, local_words
from tba_hpc.run_dir import RunDir
from tba_hpc.settings import ConfigError


def run_compare(
    config: Path,
    runs: Sequence[PlannedRun],
    folder: Path,
    ranks: int,
    mpiexec: str | None,
    target: float | None,
    console: Console,
) -> int:
    """Does the runs that are not done yet, on this machine, and writes `comparison.json` and `comparison.png` into
    `folder` after each seed's. Returns the exit code: that of a run which had to leave, else 0.

    Raises `ConfigError` where a folder holds a run with other settings, without matplotlib, and `RuntimeError` for a
    run that failed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("the plot needs matplotlib: pip install 'tba_hpc[plot]'")
    for run in runs:
        _check_own(run)
    results: list[RunResult] = []
    for number, run in enumerate(runs, start=1):
        if code := _do(config, run, ranks, mpiexec):
            return code
        results.append(read_result(run))
        last = results[-1]
        console.print(
            f"{number}/{len(runs)} {run.variant.name} seed {run.seed}: {last.curve[0].accuracy:.1%} → "
            f"{last.accuracy:.1%} in {last.seconds:.0f} s",
            highlight=False,
            soft_wrap=True,
        )
        if number == len(runs) or runs[number].seed != run.seed:
            shown = _write(results, target, folder)
    console.print(shown)
    console.print(f"curves and figures: {folder}/comparison.png, {folder}/comparison.json", soft_wrap=True)
    return 0


def _write(results: Sequence[RunResult], target: float | None, folder: Path) -> Table:
    """The files of the comparison so far; its table."""
    from tba_hpc.compare.plot import plot

    goal = default_target(results) if target is None else target
    summaries = summarise(results, goal)
    values = to_json(summaries, results, goal)
    (folder / "comparison.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    plot(results, goal, folder / "comparison.png")
    return table(summaries, goal)


def _check_own(run: PlannedRun) -> None:
    """Raises `ConfigError` if the run's folder holds one with other settings."""
    saved = RunDir(run.run_dir).config
    if saved.exists() and load_run_config(saved, []) != run.config:
        raise ConfigError(f"{run.run_dir} holds a run with other settings: give another --folder, or remove it")


def _do(config: Path, run: PlannedRun, ranks: int, mpiexec: str | None) -> int:
    """Starts or goes on with a run, unless it has finished. Returns 0, or the exit code with which it had to leave."""
    folder = RunDir(run.run_dir)
    if folder.finished_steps() is not None:
        return 0
    run.run_dir.parent.mkdir(parents=True, exist_ok=True)
    output = run.run_dir.with_name(f"{run.run_dir.name}.output.txt")
    words = local_words(rank_command(config, run.overrides, resume="auto"), ranks, mpiexec)
    with output.open("a", encoding="utf-8") as sink:
        code = subprocess.run(
            words, env=local_environment(os.environ), stdout=sink, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code not in (0, SAVED_EXIT_CODE):
        raise RuntimeError(f"the run in {run.run_dir} failed with exit code {code}; its last words are in {output}")
    return code
