"""Means over seeds, and how sure they are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from tba_hpc.compare.plan import Variant
from tba_hpc.compare.results import RunResult

_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5% quantiles of Student's t with 1, 2, … degrees of freedom."""
_Z_95 = 1.96


@dataclass(frozen=True, slots=True)
class Mean:
    """Over seeds."""

    value: float
    half_width: float | None
    """Of its 95% confidence interval by Student's t; None for a single seed."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        n = len(values)
        if n == 1:
            return cls(values[0], None)
        t = _T_95[n - 2] if n - 2 < len(_T_95) else _Z_95
        return cls(statistics.fmean(values), t * statistics.stdev(values) / math.sqrt(n))

    def show(self, form: str, scale: float = 1.0) -> str:
        own = format(scale * self.value, form)
        return own if self.half_width is None else f"{own} ± {format(scale * self.half_width, form)}"


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """Of one objective with one schedule."""

    variant: Variant
    seeds: int
    accuracy: Mean
    """After training."""
    seconds_to_target: Mean | None
    """None unless all seeds have reached it."""
    reached: int
    """Seeds that have."""
    seconds: Mean
    """Of training."""
    tokens: Mean
    steps: int
    kl: Mean
    unique_share: Mean


def default_target(results: Sequence[RunResult]) -> float:
    """The mean accuracy that the least accurate variant ends with: all can be asked when they got there."""
    return min(statistics.fmean(r.accuracy for r in of_variant) for of_variant in by_variant(results).values())


def by_variant(results: Sequence[RunResult]) -> dict[Variant, list[RunResult]]:
    grouped: dict[Variant, list[RunResult]] = {}
    for result in results:
        grouped.setdefault(result.variant, []).append(result)
    return grouped


def summarise(results: Sequence[RunResult], target: float) -> list[VariantSummary]:
    return [_summary(variant, of_variant, target) for variant, of_variant in by_variant(results).items()]


def _summary(variant: Variant, results: list[RunResult], target: float) -> VariantSummary:
    times = [seconds for result in results if (seconds := result.seconds_to(target)) is not None]
    return VariantSummary(
        variant=variant,
        seeds=len(results),
        accuracy=Mean.of([r.accuracy for r in results]),
        seconds_to_target=Mean.of(times) if len(times) == len(results) else None,
        reached=len(times),
        seconds=Mean.of([r.seconds for r in results]),
        tokens=Mean.of([r.tokens for r in results]),
        steps=results[0].steps,
        kl=Mean.of([r.kl for r in results]),
        unique_share=Mean.of([r.unique_share for r in results]),
    )


def to_json(summaries: Sequence[VariantSummary], results: Sequence[RunResult], target: float) -> dict[str, Any]:
    return {
        "target_accuracy": target,
        "variants": {s.variant.name: {k: v for k, v in asdict(s).items() if k != "variant"} for s in summaries},
        "runs": [asdict(result) for result in results],
    }


def table(summaries: Sequence[VariantSummary], target: float) -> Table:
    n = max(summary.seeds for summary in summaries)
    title = f"means over {n} seed{'s' if n > 1 else ''}" + (", ± 95% confidence" if n > 1 else "")
    result = Table(title=title)
    for heading in (
        "objective",
        "schedule",
        "accuracy, %",
        f"seconds to {target:.1%}",
        "seconds in all",
        "million tokens",
        "steps",
        "KL, nats",
        "unique, %",
    ):
        result.add_column(heading)
    for s in summaries:
        reached = s.seconds_to_target.show(".0f") if s.seconds_to_target else f"reached by {s.reached} of {s.seeds}"
        result.add_row(
            s.variant.objective,
            s.variant.schedule,
            s.accuracy.show(".1f", 100),
            reached,
            s.seconds.show(".0f"),
            s.tokens.show(".2f", 1e-6),
            str(s.steps),
            s.kl.show(".2f"),
            s.unique_share.show(".1f", 100),
        )
    return result
