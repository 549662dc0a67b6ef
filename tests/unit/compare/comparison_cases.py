"""Finished runs as a comparison finds them, without training."""

from __future__ import annotations

import json

from tba_hpc.compare.plan import PlannedRun
from tba_hpc.settings import to_yaml


def write_run(run: PlannedRun, accuracies: dict[int, float], seconds_per_step: float, **last: float) -> None:
    """A run that began at 1,000 s, `accuracies` by step, 0 and the last one included; 10 trajectories a step."""
    steps = max(accuracies)
    run.run_dir.mkdir(parents=True)
    (run.run_dir / "config.yaml").write_text(to_yaml(run.config))
    values = {"searcher/tokens": 5e6, "rollout/kl": 0.5, "buffer/duplicate_share": 0.25} | last
    metrics = [
        {"step": step, "time": 1000 + seconds_per_step * step, "buffer/received": 10 * step, **values}
        for step in range(1, steps + 1)
    ]
    during = [{"step": step, "accuracy": accuracy} for step, accuracy in accuracies.items() if step]
    for name, lines in (("metrics", metrics), ("evaluations", during)):
        (run.run_dir / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = {
        "accuracy_before": accuracies[0],
        "accuracy_after": accuracies[steps],
        "steps": steps,
        "train_seconds": seconds_per_step * steps,
    }
    (run.run_dir / "report.json").write_text(json.dumps(report))
