"""From what happened in a step to the numbers and texts that a person looks at."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tba_hpc.config import LoggingConfig, RolloutConfig
from tba_hpc.distributed.trainer_exchange import Arrival
from tba_hpc.evaluations import Evaluations
from tba_hpc.intake import Intake
from tba_hpc.metrics import MetricsWriter
from tba_hpc.progress import Columns, ProgressDisplay
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.trajectory import SampledBatch, Trajectory, TrajectoryBatch

COLUMNS: Columns = (
    ("rollout/reward", "reward", ".3f"),
    ("rollout/accuracy", "accuracy", ".3f"),
    ("objective/loss", "loss", ".4f"),
    ("rollout/kl", "KL", ".3f"),
    ("schedule/beta", "β", ".4g"),
    ("staleness/mean", "staleness", ".1f"),
    ("throughput/trajectories_per_second", "traj/s", ".0f"),
    ("throughput/tokens_per_second", "tok/s", ".0f"),
    ("buffer/size", "buffer", ".0f"),
)


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimizer step as trainer 0 saw it."""

    step: int
    """0, 1, …"""
    batch: SampledBatch
    metrics: dict[str, float]
    """From the optimizer engine, with β and learning rate."""
    busy_seconds: float
    waiting_seconds: float
    """For data, and for a sync that was late."""
    sync_seconds: float
    """Duration of the last sync, which ran beside training."""
    checkpoint: dict[str, float]
    """Metrics of the last save."""


class Monitor:
    """Writes metrics and moves the progress display, after every step."""

    def __init__(
        self,
        config: LoggingConfig,
        rollout: RolloutConfig,
        writer: MetricsWriter,
        display: ProgressDisplay,
        buffer: ReplayBuffer,
        intake: Intake,
        render: Callable[[Trajectory], str],
    ) -> None:
        """`render` shows a trajectory as Markdown."""
        self._config = config
        self._rollout = rollout
        self._writer = writer
        self._display = display
        self._buffer = buffer
        self._intake = intake
        self._render = render
        self._rates = SearcherRates()
        self._evaluations = Evaluations()
        self._arrival: Arrival | None = None
        self._of_arrival: dict[str, float] = {}

    def step(self, report: StepReport) -> None:
        done = report.step + 1
        metrics = {
            **batch_metrics(report.step, report.batch),
            **_grouped(report.metrics),
            **self._buffer_metrics(),
            **self._searcher_metrics(),
            **report.checkpoint,
            "trainer/busy": report.busy_seconds / max(report.busy_seconds + report.waiting_seconds, 1e-9),
            "trainer/step_seconds": report.busy_seconds,
            "trainer/waiting_seconds": report.waiting_seconds,
            "trainer/sync_seconds": report.sync_seconds,
        }
        self._writer.scalars(done, metrics)
        self._write_evaluations()
        if done % self._config.histograms_every == 0:
            self._writer.histogram(done, "staleness", staleness(report.step, report.batch))
        if done % self._config.samples_every == 0:
            self._write_samples(done, report.batch)
        self._display.update(done, metrics)

    def evaluation_asked(self, step: int) -> None:
        """The searchers have been asked to evaluate the weights of optimizer step `step`."""
        self._evaluations.ask(step)

    def finish(self) -> None:
        """After the last round."""
        self._write_evaluations()
        self._evaluations.give_up()

    def _write_evaluations(self) -> None:
        """Those that have become complete since the last time."""
        if self._intake.last is not None:
            for evaluation in self._evaluations.update(self._intake.last.headers):
                self._writer.evaluation(evaluation.step, evaluation.to_json())

    def _buffer_metrics(self) -> dict[str, float]:
        stats = self._buffer.stats()
        return {
            "buffer/size": len(self._buffer),
            "buffer/queries": stats.queries,
            "buffer/in_ram": stats.in_ram,
            "buffer/on_disk": stats.on_disk,
            "buffer/evicted": stats.evicted,
            "buffer/lost": stats.lost,
            "buffer/received": self._intake.arrived.trajectories,
            "buffer/duplicate_share": self._intake.arrived.duplicates / max(self._intake.arrived.trajectories, 1),
        }

    def _searcher_metrics(self) -> dict[str, float]:
        """What the searchers did and how fast; it changes when something arrives, not with every step."""
        if self._intake.last is not None and self._intake.last is not self._arrival:
            self._arrival = self._intake.last
            self._rates.update(self._arrival.headers)
            self._of_arrival = rollout_metrics(self._intake.latest_sync, self._rollout) | self._rates.values
        return self._of_arrival

    def _write_samples(self, done: int, batch: SampledBatch) -> None:
        chosen = np.linspace(0, len(batch) - 1, min(self._config.samples, len(batch))).astype(int)
        for number, trajectory in enumerate(batch.trajectories.select(chosen)):
            self._writer.text(done, f"samples/{number}", self._render(trajectory))


class SearcherRates:
    """Rates of all searchers together, from the running totals in their headers over the last ten seconds or so."""

    _WINDOW_SECONDS = 10.0

    def __init__(self) -> None:
        self._history: list[tuple[float, np.ndarray]] = []
        self.values: dict[str, float] = {}

    def update(self, headers: np.ndarray) -> None:
        """`headers [n]` of `round.HEADER`."""
        now = time.monotonic()
        names = ("generated", "tokens", "busy_seconds", "waiting_seconds")
        totals = np.array([headers[name].sum() for name in names], np.float64)
        self._history.append((now, totals))
        while len(self._history) > 2 and now - self._history[1][0] > self._WINDOW_SECONDS:
            self._history.pop(0)
        since, before = self._history[0]
        generated, tokens, busy, waiting = totals - before if now > since else np.zeros(4)
        seconds = max(now - since, 1e-9)
        self.values = {
            "throughput/trajectories_per_second": generated / seconds,
            "throughput/tokens_per_second": tokens / seconds,
            "searcher/busy": busy / (seconds * len(headers)),
            "searcher/waiting": waiting / (seconds * len(headers)),
            "searcher/longest_idle_seconds": float(headers["idle_seconds"].max()),
            "searcher/generated": float(headers["generated"].sum()),
            "searcher/tokens": float(headers["tokens"].sum()),
        }


def rollout_metrics(batches: Sequence[TrajectoryBatch], rollout: RolloutConfig) -> dict[str, float]:
    """Means over what the searchers sampled last: how good the policy is, and its KL divergence from the reference.
    The batches learned from say little about that: the buffer keeps duplicates once and favours some."""
    if not batches:
        return {}
    rows = np.concatenate([batch.rows for batch in batches])
    return {**_means("rollout", rows), **_kl_metric(batches, rollout)}


def _means(heading: str, rows: NDArray[np.void]) -> dict[str, float]:
    """Over trajectories, `rows [N]` of `ROW_DTYPE`."""
    return {
        f"{heading}/reward": float(rows["reward"].mean()),
        f"{heading}/accuracy": float(rows["correct"].mean()),
        f"{heading}/response_tokens": float(rows["response_length"].mean()),
        f"{heading}/truncated": float(1 - rows["finished"].mean()),
    }


def _kl_metric(batches: Sequence[TrajectoryBatch], rollout: RolloutConfig) -> dict[str, float]:
    """KL(π ‖ π_ref) in nats a response, from the responses that were sampled from π itself: not by exploration, nor
    with the tail of π cut off. Nothing where there are none, or where they cannot be told apart."""
    explore = rollout.exploration
    hidden = explore is not None and explore.top_p[0] < 1 and explore.temperature == (rollout.temperature,) * 2
    if rollout.top_p < 1 or hidden:
        return {}
    log_ratio, responses = 0.0, 0
    for batch in batches:
        from_policy = batch.rows["temperature"] == np.float32(rollout.temperature)
        tokens = np.repeat(from_policy, batch.rows["response_length"])
        log_ratio += float((batch.behavior_logprobs - batch.reference_logprobs)[tokens].sum())
        responses += int(from_policy.sum())
    return {"rollout/kl": log_ratio / responses} if responses else {}


def batch_metrics(step: int, batch: SampledBatch) -> dict[str, float]:
    """Means over the batch that step `step` learned from."""
    stale = staleness(step, batch)
    return {
        **_means("batch", batch.trajectories.rows),
        "batch/recent": float(batch.recent.mean()),
        "staleness/mean": float(stale.mean()),
        "staleness/max": float(stale.max()),
    }


def staleness(step: int, batch: SampledBatch) -> np.ndarray:
    """`[N]` optimizer steps between the weights that sampled a trajectory and those that learn from it."""
    age: np.ndarray = step - batch.trajectories.rows["policy_version"]
    return age


def _grouped(metrics: dict[str, float]) -> dict[str, float]:
    """Engine metrics under the headings they have in TensorBoard."""
    schedule = dict.fromkeys(("beta", "learning_rate"), "schedule")
    optimizer = dict.fromkeys(("grad_norm", "skipped_updates", "micro_batches", "tokens"), "optimizer")
    reference = dict.fromkeys(("version", "rescored"), "reference")
    folders = schedule | optimizer | reference
    return {f"{folders.get(name, 'objective')}/{name}": value for name, value in metrics.items()}
