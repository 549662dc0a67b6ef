"""Runs the quickstart with several seeds and reports the gain in held-out greedy accuracy.

    .venv/bin/python tools/measure_quickstart.py --seeds 0 1 2 [--ranks 4] [OVERRIDES …]

Prints a row a seed, and one JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path


def run(seed: int, ranks: int, folder: Path, overrides: list[str]) -> dict[str, float]:
    """The report of one quickstart run."""
    run_dir = folder / f"seed{seed}"
    command = [sys.executable, "-m", "tba_hpc", "train", "configs/quickstart.yaml", "--overwrite"]
    words = ["--ranks", str(ranks), *overrides, f"seed={seed}", f"run_dir={run_dir}"]
    with (folder / f"seed{seed}.txt").open("w") as output:
        subprocess.run([*command, *words], check=True, stdout=output, stderr=subprocess.STDOUT)
    report: dict[str, float] = json.loads((run_dir / "report.json").read_text())
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path("runs/measure_quickstart"))
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_intermixed_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)

    gains, seconds = [], []
    for seed in arguments.seeds:
        report = run(seed, arguments.ranks, arguments.folder, arguments.overrides)
        gains.append(100 * (report["accuracy_after"] - report["accuracy_before"]))
        seconds.append(report["train_seconds"])
        print(
            f"seed {seed}: {report['accuracy_before']:.1%} → {report['accuracy_after']:.1%} "
            f"({gains[-1]:+.1f} points) in {seconds[-1]:.0f} s of training",
            flush=True,
        )
    metrics = {
        "gain_points/mean": statistics.mean(gains),
        "gain_points/min": min(gains),
        "train_seconds/mean": statistics.mean(seconds),
    }
    print(json.dumps({"benchmark": "quickstart", "seeds": arguments.seeds, "metrics": metrics}))


if __name__ == "__main__":
    main()
