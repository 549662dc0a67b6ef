"""TBA′ on two-digit addition, every batch ten optimizer steps off-policy, beside the same without resets of the
reference policy, and without resets but with a β so small that it hardly holds the policy back.

    .venv/bin/python tools/measure_tba_prime.py --seeds 0 [--ranks 4] [--plot tba_prime.png] [OVERRIDES …]

Prints a row for each run, and one JSON object on the last line. `--plot` draws the held-out greedy accuracy that the
searchers found during training, and the divergence from the reference.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from recipe_runs import RecipeRun, lines_of, parser, run_seeds

CONFIG = "configs/arithmetic_tba_prime.yaml"
WITHOUT = "reference.reset_every=null"
VARIANTS = {
    "resets": [],
    "no_resets": [WITHOUT],
    "no_resets_small_beta": [WITHOUT, "objective.beta.value=0.005"],
}


def held_out(run: RecipeRun) -> tuple[list[float], list[float]]:
    """Steps, and greedy accuracy after them, from before training to its end."""
    during = lines_of(run.run_dir / "evaluations.jsonl")
    steps = [0.0, *(line["step"] for line in during), float(run.report["steps"])]
    return steps, [run.report["accuracy_before"], *(line["accuracy"] for line in during), run.report["accuracy_after"]]


def worst_fall(run: RecipeRun) -> float:
    """Points from the best evaluation so far down to a later one."""
    best = fall = 0.0
    for accuracy in held_out(run)[1]:
        best = max(best, accuracy)
        fall = max(fall, best - accuracy)
    return 100 * fall


def plot(runs: dict[str, list[RecipeRun]], path: Path) -> None:
    mpl.use("Agg")
    figure, (accuracy, divergence) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for color, (name, of_variant) in enumerate(runs.items()):
        for number, run in enumerate(of_variant):
            label = name.replace("_", " ") if number == 0 else None
            accuracy.plot(*held_out(run), "o-", color=f"C{color}", label=label)
            lines = [line for line in lines_of(run.run_dir / "metrics.jsonl") if "rollout/kl" in line]
            divergence.plot([line["step"] for line in lines], [line["rollout/kl"] for line in lines], color=f"C{color}")
    for panel, label in (
        (accuracy, "held-out greedy accuracy"),
        (divergence, "KL from the reference, nats a response"),
    ):
        panel.set_xlabel("optimizer step")
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
    accuracy.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def measure(name: str, words: argparse.Namespace) -> list[RecipeRun]:
    print(name.replace("_", " "), flush=True)
    overrides = [*VARIANTS[name], *words.overrides]
    return run_seeds(
        CONFIG, argparse.Namespace(**vars(words) | {"folder": words.folder / name, "overrides": overrides})
    )


def main() -> None:
    arguments = parser(__doc__, "runs/measure_tba_prime")
    arguments.add_argument("--plot", type=Path)
    words = arguments.parse_intermixed_args()
    runs = {name: measure(name, words) for name in VARIANTS}
    if words.plot:
        plot(runs, words.plot)
    metrics = {}
    for name, of_variant in runs.items():
        metrics[f"{name}/gain_points"] = statistics.mean(run.gain for run in of_variant)
        metrics[f"{name}/worst_fall_points"] = max(worst_fall(run) for run in of_variant)
    print(json.dumps({"benchmark": "tba_prime", "seeds": words.seeds, "metrics": metrics}))


if __name__ == "__main__":
    main()
