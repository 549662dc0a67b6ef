"""How near each objective comes to the posterior that it should learn, the staler its data, where the posterior is
known exactly: in the world of `token_tree`.

    .venv/bin/python tools/posterior_fidelity.py [--quick] [--objectives tb_vargrad grpo …] [--seeds 0 1 2] [--jobs 2]
                                                 [--plot posterior_fidelity.png]

All objectives have the same reference policy, rewards, β, batches, optimizer steps and learning rate schedule, and the
same learning rates to choose from. For each source of data that one counts which has the best J = E[r] − β KL at the
end, as whoever trains a policy can measure that, too. Clip ranges and the like are the defaults of the package.

Prints a row for each objective and source: means over the seeds, and as `worst` the largest total variation (TV) of a
seed. A star is at learning rates at the end of what there was to choose from. Then TV once more as a table, and one
JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from token_tree import World, make_world
from torch import Tensor
from tree_training import Budget, train

from tba_hpc.config import ObjectiveConfig
from tba_hpc.objectives import OBJECTIVES, Objective

RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
STALENESS = (0, 1, 4, 16, 64)
OPTIONS = {"sft": {"min_reward": 1.0}}
"""Imitation of all that was sampled would teach nothing; this is imitation of the modes."""

COLUMNS = {"tv": 8, "tv_worst": 8, "reward": 8, "kl": 8, "j": 8, "modes": 7}
TITLES = {"tv": "TV", "tv_worst": "worst", "kl": "KL", "j": "J"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an objective with data of one kind."""

    objective: str
    staleness: int | None
    """Of the data, in optimizer steps; None for the fixed buffer."""
    rate: float
    """The best of the learning rates."""
    figures: dict[str, float]
    """Those of `World.measure` with it, means over the seeds, and `tv_worst`, the largest `tv`."""

    @property
    def data(self) -> str:
        return "uniform_buffer" if self.staleness is None else f"staleness_{self.staleness}"


def make_objective(name: str, beta: float) -> Objective:
    values = {"name": name, "beta": {"kind": "constant", "value": beta}, **OPTIONS.get(name, {})}
    return OBJECTIVES[name](TypeAdapter(ObjectiveConfig).validate_python(values))


def run(objective: str, staleness: Sequence[int] | None, budget: Budget) -> list[Outcome]:
    """For each staleness, or, with None, for the fixed buffer alone."""
    world = make_world()
    tables = train(world, make_objective(objective, world.beta), budget, staleness)
    cells = [None] if staleness is None else staleness
    return [Outcome(objective, cell, *best(world, budget.rates, t)) for cell, t in zip(cells, tables, strict=True)]


def best(world: World, rates: Sequence[float], tables: Tensor) -> tuple[float, dict[str, float]]:
    """The learning rate whose policies of `tables [A, S, P, W, M]` have the best E[r] − β KL, and their figures."""
    figures = {name: values.view(tables.shape[:2]) for name, values in world.measure(tables.flatten(0, 1)).items()}
    chosen = int(figures["j"].mean(dim=1).nan_to_num(nan=-math.inf).argmax())
    means = {name: values[chosen].mean().item() for name, values in figures.items()}
    return rates[chosen], {**means, "tv_worst": figures["tv"][chosen].max().item()}


def run_all(objectives: Sequence[str], budget: Budget, jobs: int) -> Iterator[Outcome]:
    """One objective after the other, as they are done."""
    work = product(objectives, (STALENESS, None))
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as processes:
        for outcomes in processes.map(run, *zip(*work, strict=True), repeat(budget)):
            yield from outcomes


def describe(world: World, budget: Budget) -> str:
    prompts, responses = world.rewards.shape
    reference = {name: value.item() for name, value in world.measure(world.reference[None]).items()}
    shares = world.tree.response_logprobs(world.reference).exp(), world.log_posterior.exp()
    before, after = (100 * (share * world.modes).sum().item() / prompts for share in shares)
    return (
        f"{prompts} prompts × {responses} responses; {world.modes.sum().item() // prompts} modes a prompt, with "
        f"{before:.1f}% of the reference policy and {after:.0f}% of the posterior; β = {world.beta}\n"
        f"reference policy: TV {reference['tv']:.3f}, J {reference['j']:.4f}; posterior: J {world.optimum:.4f}\n"
        f"{budget.steps} steps, {budget.samples} responses a prompt in a batch, {len(budget.seeds)} seeds, "
        f"learning rates {', '.join(map(str, budget.rates))}\n"
    )


def row(outcome: Outcome, rates: Sequence[float]) -> str:
    figures = "".join(
        f"{outcome.figures[name]:{width}.{2 if name == 'modes' else 4}f}" for name, width in COLUMNS.items()
    )
    star = "*" if len(rates) > 1 and outcome.rate in (min(rates), max(rates)) else ""
    return f"{outcome.objective:16}{outcome.data:16}{figures}  {outcome.rate:g}{star}"


def heading() -> str:
    titles = "".join(f"{TITLES.get(name, name):>{width}}" for name, width in COLUMNS.items())
    return f"{'objective':16}{'data':16}{titles}  learning rate"


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Total variation, a line for each objective."""
    data = list(dict.fromkeys(outcome.data for outcome in outcomes))
    lines = ["| | " + " | ".join(name.replace("_", " ") for name in data) + " |", "|---" * (len(data) + 1) + "|"]
    for name in dict.fromkeys(outcome.objective for outcome in outcomes):
        values = [f"{o.figures['tv']:.3f}" for o in outcomes if o.objective == name]
        lines.append(f"| `{name}` | " + " | ".join(values) + " |")
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome], budget: Budget, seconds: float) -> str:
    """The JSON object; a figure that is not a number is null."""
    metrics = {
        f"{outcome.objective}/{outcome.data}/{name}": None if math.isnan(value) else round(value, 6)
        for outcome in outcomes
        for name, value in {**outcome.figures, "learning_rate": outcome.rate}.items()
    }
    return json.dumps(
        {
            "benchmark": "posterior_fidelity",
            "machine": {"cores": os.cpu_count(), "architecture": platform.machine()},
            "versions": {"python": platform.python_version(), "torch": version("torch")},
            "seeds": list(budget.seeds),
            "seconds": round(seconds, 1),
            "metrics": metrics,
        }
    )


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Total variation over staleness, and beside it from the fixed buffer."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    names = list(dict.fromkeys(outcome.objective for outcome in outcomes))
    last = len(STALENESS)
    for number, name in enumerate(names):
        values = [o.figures["tv"] for o in outcomes if o.objective == name]
        style: dict[str, Any] = {
            "color": f"C{number}",
            "marker": "osD^vP*Xh<"[number % 10],
            "linewidth": 2.5 if number == 0 else 1.2,
        }
        panel.plot(range(last), values[:last], label=name, **style)
        aside = 0.4 * ((number + 0.5) / len(names) - 0.5)  # where several would lie on one another
        panel.plot([last + aside], values[last:], **style)
    panel.set_yscale("log")
    panel.set_ylim(5e-4, 1)
    panel.axhline(0.02, color="grey", linewidth=0.8, linestyle="--", label="0.02")
    panel.set_xticks(range(last + 1), [*map(str, STALENESS), "uniform\nbuffer"])
    panel.set_xlabel("optimizer steps between sampling and learning")
    panel.set_ylabel("total variation to the posterior")
    panel.grid(alpha=0.3, which="both")
    figure.legend(loc="outside right upper", fontsize="small")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tb_vargrad alone, one seed, one learning rate")
    parser.add_argument("--objectives", nargs="+", choices=list(OBJECTIVES), default=list(OBJECTIVES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="processes, one core each")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    words = parser.parse_args()
    if words.quick:
        objectives, budget = ["tb_vargrad"], Budget(rates=[0.05], seeds=words.seeds[:1], steps=2500)
    else:
        objectives, budget = words.objectives, Budget(rates=RATES, seeds=words.seeds)
    started = time.perf_counter()
    print(describe(make_world(), budget))
    print(heading(), flush=True)
    outcomes = []
    for outcome in run_all(objectives, budget, words.jobs):
        outcomes.append(outcome)
        print(row(outcome, budget.rates), flush=True)
    print(f"\n{markdown(outcomes)}\n")
    if words.plot:
        plot(outcomes, words.plot)
    print(summary(outcomes, budget, time.perf_counter() - started))


if __name__ == "__main__":
    main()
