"""What the measurements of recipes have in common: runs with several seeds, and what came of them."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class RecipeRun:
    seed: int
    run_dir: Path
    report: dict[str, Any]
    """Its `report.json`."""

    @property
    def gain(self) -> float:
        """In held-out greedy accuracy, points."""
        return 100 * (self.report["accuracy_after"] - self.report["accuracy_before"])


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def parser(description: str | None, folder: str) -> argparse.ArgumentParser:
    """The arguments that all have, `folder` the default for where runs go; read by `parse_intermixed_args`."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    result.add_argument("--ranks", type=int, default=4)
    result.add_argument("--folder", type=Path, default=Path(folder))
    result.add_argument("overrides", nargs="*")
    return result


def run_seeds(config: str, arguments: argparse.Namespace) -> list[RecipeRun]:
    """One run of the recipe after another; prints a row each."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    runs = []
    for seed in arguments.seeds:
        runs.append(_run(config, seed, arguments.ranks, arguments.folder, arguments.overrides))
        report = runs[-1].report
        print(
            f"seed {seed}: {report['accuracy_before']:.1%} → {report['accuracy_after']:.1%} "
            f"({runs[-1].gain:+.1f} points) in {report['train_seconds']:.0f} s of training",
            flush=True,
        )
    return runs


def print_summary(benchmark: str, runs: Sequence[RecipeRun]) -> None:
    """One JSON object."""
    metrics = {
        "gain_points/mean": statistics.mean(run.gain for run in runs),
        "gain_points/min": min(run.gain for run in runs),
        "train_seconds/mean": statistics.mean(run.report["train_seconds"] for run in runs),
    }
    print(json.dumps({"benchmark": benchmark, "seeds": [run.seed for run in runs], "metrics": metrics}))


def _run(config: str, seed: int, ranks: int, folder: Path, overrides: list[str]) -> RecipeRun:
    """Its output goes to a file in `folder`."""
    run_dir = folder / f"seed{seed}"
    command = [sys.executable, "-m", "tba_hpc", "train", config, "--overwrite"]
    words = ["--ranks", str(ranks), *overrides, f"seed={seed}", f"run_dir={run_dir}"]
    with (folder / f"seed{seed}.txt").open("w") as output:
        subprocess.run([*command, *words], check=True, stdout=output, stderr=subprocess.STDOUT)
    return RecipeRun(seed, run_dir, json.loads((run_dir / "report.json").read_text()))
