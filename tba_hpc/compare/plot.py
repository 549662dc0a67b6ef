"""Accuracy over training time and over samples, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tba_hpc.compare.results import RunResult
from tba_hpc.compare.summary import by_variant


def plot(results: Sequence[RunResult], target: float, path: Path) -> None:
    """A curve a run, a colour a variant, written as PNG to `path`."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    over_time, over_samples = figure.subplots(1, 2, sharey=True)
    for color, (variant, of_variant) in enumerate(by_variant(results).items()):
        for number, result in enumerate(of_variant):
            accuracies = [100 * point.accuracy for point in result.curve]
            label = f"{variant.objective}, {variant.schedule}" if number == 0 else None
            style = {"color": f"C{color % 10}", "marker": ".", "linewidth": 1.2, "label": label}
            over_time.plot([point.seconds for point in result.curve], accuracies, **style)
            over_samples.plot([point.trajectories for point in result.curve], accuracies, **style)
    over_time.set_ylabel("held-out greedy accuracy, %")
    for panel, label in ((over_time, "training time, s"), (over_samples, "trajectories sampled")):
        panel.axhline(100 * target, color="grey", linewidth=0.8, linestyle="--")
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
    over_time.legend(fontsize="small")
    figure.savefig(path, dpi=120)
