"""What a finished run has to show in a comparison."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tba_hpc.compare.plan import PlannedRun, Variant
from tba_hpc.run_dir import RunDir


@dataclass(frozen=True, slots=True)
class Point:
    """The policy after so many optimizer steps."""

    step: int
    seconds: float
    """Of training until then; evaluations before and after it do not count."""
    trajectories: int
    """That had arrived until then."""
    accuracy: float
    """Greedy, on held-out problems."""


@dataclass(frozen=True, slots=True)
class RunResult:
    variant: Variant
    seed: int
    curve: tuple[Point, ...]
    """From before the first step to after the last."""
    steps: int
    seconds: float
    """Of training."""
    tokens: float
    """That the searchers have generated."""
    kl: float
    """From the reference policy, nats a response, of what was sampled last."""
    unique_share: float
    """Of all trajectories that arrived, those that were no exact duplicate."""

    @property
    def accuracy(self) -> float:
        """After training."""
        return self.curve[-1].accuracy

    def seconds_to(self, target: float) -> float | None:
        """Training time until the held-out accuracy first reached `target`, on straight lines between evaluations;
        None if it never did."""
        before = self.curve[0]
        if before.accuracy >= target:
            return before.seconds
        for point in self.curve[1:]:
            if point.accuracy >= target:
                share = (target - before.accuracy) / (point.accuracy - before.accuracy)
                return before.seconds + share * (point.seconds - before.seconds)
            before = point
        return None


def read_result(run: PlannedRun) -> RunResult:
    """Of a run that has finished."""
    folder = RunDir(run.run_dir)
    report = folder.read_report()
    steps = {line["step"]: line for line in _lines(folder.metrics)}
    last = steps[report["steps"]]

    def point(step: int, accuracy: float) -> Point:
        line = steps[step]
        return Point(step, report["train_seconds"] - (last["time"] - line["time"]), line["buffer/received"], accuracy)

    during = [point(line["step"], line["accuracy"]) for line in _lines(folder.evaluations)]
    end = point(report["steps"], report["accuracy_after"])
    curve = [Point(0, 0.0, 0, report["accuracy_before"]), *(p for p in during if p.step < end.step), end]
    return RunResult(
        variant=run.variant,
        seed=run.seed,
        curve=tuple(curve),
        steps=report["steps"],
        seconds=report["train_seconds"],
        tokens=last["searcher/tokens"],
        kl=last["rollout/kl"],
        unique_share=1 - last["buffer/duplicate_share"],
    )


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
