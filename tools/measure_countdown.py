"""Runs the Countdown recipe for a CPU with several seeds and reports the gain in held-out greedy accuracy.

    .venv/bin/python tools/measure_countdown.py --seeds 0 1 2 [--ranks 4] [--plot countdown.png] [OVERRIDES …]

Prints a row a seed, and one JSON object on the last line. `--plot` draws how often the responses that searchers sampled
were right, over optimizer steps and over seconds, and the held-out accuracy before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from recipe_runs import RecipeRun, lines_of, parser, print_summary, run_seeds

SMOOTHING = 9
"""Steps that a point of a curve is the mean of."""


def rollout_accuracy(run_dir: Path) -> tuple[list[int], list[float], list[float]]:
    """Optimizer steps, seconds since the first of them, and the accuracy of the responses sampled meanwhile; of those
    steps in which responses arrived."""
    lines = [line for line in lines_of(run_dir / "metrics.jsonl") if line.get("rollout/accuracy") is not None]
    return (
        [line["step"] for line in lines],
        [line["time"] - lines[0]["time"] for line in lines],
        [line["rollout/accuracy"] for line in lines],
    )


def smoothed(values: Sequence[float]) -> list[float]:
    """Each with the mean of the last `SMOOTHING` in its place."""
    recent = [values[max(i + 1 - SMOOTHING, 0) : i + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in recent]


def plot(runs: Sequence[RecipeRun], path: Path) -> None:
    mpl.use("Agg")
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for number, run in enumerate(runs):
        steps, seconds, accuracy = rollout_accuracy(run.run_dir)
        before_and_after = [run.report["accuracy_before"], run.report["accuracy_after"]]
        for panel, x in zip(panels, (steps, seconds), strict=True):
            panel.plot(x, smoothed(accuracy), color=f"C{number}", label=f"seed {run.seed}")
            panel.plot([x[0], x[-1]], before_and_after, "o", color=f"C{number}")
    for panel, label in zip(panels, ("optimizer step", "seconds"), strict=True):
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("accuracy")
    panels[0].legend(title="lines: sampled, training problems\ndots: greedy, held-out problems")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    arguments = parser(__doc__, "runs/measure_countdown")
    arguments.add_argument("--plot", type=Path)
    words = arguments.parse_intermixed_args()
    runs = run_seeds("configs/countdown_tiny_cpu.yaml", words)
    if words.plot:
        plot(runs, words.plot)
    print_summary("countdown", runs)


if __name__ == "__main__":
    main()
