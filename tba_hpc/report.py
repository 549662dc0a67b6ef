"""What a finished run has to say for itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tba_hpc.accuracy import Accuracy
from tba_hpc.checkpoint import CheckpointState
from tba_hpc.distributed.world import World
from tba_hpc.replay.buffer import BufferStats


@dataclass(frozen=True, slots=True)
class RunReport:
    """The figures of `report.json`. Accuracies are greedy, on held-out problems, 0 … 1; None where there was no
    evaluation."""

    accuracy_before: float | None
    accuracy_after: float | None
    interval_before: tuple[float, float] | None
    interval_after: tuple[float, float] | None
    problems: int
    """Of the evaluation after training."""
    problems_before: int
    steps: int
    trainers: int
    searchers: int
    trajectories_received: int
    trajectories_in_ram: int
    trajectories_on_disk: int
    train_seconds: float
    total_seconds: float

    @classmethod
    def of(
        cls,
        world: World,
        trained: CheckpointState,
        after: Accuracy | None,
        stats: BufferStats,
        total_seconds: float,
    ) -> RunReport:
        """`trained`: as the last step was done."""
        before = trained.accuracy_before
        return cls(
            accuracy_before=before.share if before else None,
            accuracy_after=after.share if after else None,
            interval_before=before.interval if before else None,
            interval_after=after.interval if after else None,
            problems=after.problems if after else 0,
            problems_before=before.problems if before else 0,
            steps=trained.step,
            trainers=world.n_trainers,
            searchers=world.n_searchers,
            trajectories_received=trained.received,
            trajectories_in_ram=stats.in_ram,
            trajectories_on_disk=stats.on_disk,
            train_seconds=trained.train_seconds,
            total_seconds=total_seconds,
        )

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def show(self, console: Console, run_dir: Path) -> None:
        table = Table(title="Run finished", show_header=False)
        if self.accuracy_before is not None and self.accuracy_after is not None:
            table.add_row("held-out accuracy", f"{self.accuracy_before:.1%} → {self.accuracy_after:.1%}")
            gain = (
                f"{100 * (self.accuracy_after - self.accuracy_before):+.1f} points on {self.problems} problems, greedy"
            )
            other = f"unknown: {self.problems_before} problems before training, {self.problems} after"
            table.add_row("gain", gain if self.problems == self.problems_before else other)
        table.add_row("ranks", f"{self.trainers} trainer(s), {self.searchers} searcher(s)")
        table.add_row("optimizer steps", str(self.steps))
        table.add_row(
            "trajectories", f"{self.trajectories_received} ({self.trajectories_received / self.train_seconds:.0f}/s)"
        )
        table.add_row("training", f"{self.train_seconds:.0f} s of {self.total_seconds:.0f} s")
        console.print(table)
        console.print(f"final model, metrics and logs: {run_dir}", soft_wrap=True, highlight=False, markup=False)
