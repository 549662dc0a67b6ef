"""The `tba-hpc` command. Heavy imports happen inside the commands that need them: `--help` should not load torch."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tba_hpc.progress import show_error
from tba_hpc.settings import ConfigError

app = typer.Typer(
    help="Reinforcement-learning post-training by Trajectory Balance with Asynchrony.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
ConfigFile = Annotated[Path, typer.Argument(help="YAML file of the run.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Settings to change: trainer.steps=50 run_dir=runs/try", show_default=False),
]


@app.command()
def train(
    config: ConfigFile,
    overrides: Overrides = None,
    ranks: Annotated[int | None, typer.Option(help="Start this many MPI ranks on this machine.")] = None,
    mpiexec: Annotated[str | None, typer.Option(help="MPI launcher to start them with, with its options.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Delete an earlier run in the run directory.")] = False,
) -> None:
    """Asynchronous TBA over MPI ranks.

    With --ranks it starts them itself; under mpirun or srun it is one of them."""
    from tba_hpc.launch.command import inside_mpi_world, launched_tasks, rank_command

    if ranks is None and inside_mpi_world(os.environ):
        sys.exit(_run_rank(config, overrides or [], overwrite))
    from tba_hpc.config import load_run_config
    from tba_hpc.launch.local import run_local

    settings = load_run_config(config, overrides or [])
    if ranks is None:
        raise ConfigError("how many ranks? Give --ranks N (at least 2), or start this command with mpirun or srun")
    if (tasks := launched_tasks(os.environ)) > 1:
        raise ConfigError(
            f"--ranks {ranks} would start so many ranks from each of the {tasks} tasks that a launcher has started: "
            "leave --ranks out, or start this command once"
        )
    settings.check_world(ranks)
    run_local(rank_command(config, overrides or [], overwrite), ranks, mpiexec)


def _run_rank(config: Path, overrides: list[str], overwrite: bool) -> int:
    from mpi4py import MPI

    from tba_hpc.distributed.abort import abort_on_error
    from tba_hpc.distributed.launcher import check_launcher

    comm = MPI.COMM_WORLD
    check_launcher(comm.size, MPI.Query_thread(), os.environ)
    with abort_on_error(comm, f"rank {comm.rank}"):
        from tba_hpc.run import run_rank

        return run_rank(comm, config, overrides, overwrite)


@app.command()
def sft(config: ConfigFile, overrides: Overrides = None) -> None:
    """Supervised fine-tuning: the warm-up that reinforcement learning starts from."""
    from tba_hpc.config import load_sft_config

    settings = load_sft_config(config, overrides or [])
    from tba_hpc.sft import run_sft

    console = Console()

    def show(metrics: dict[str, float]) -> None:
        line = " | ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        console.print(line, soft_wrap=True, highlight=False)

    result = run_sft(settings, show)
    accuracy = f"{result.evaluation.accuracy:.1%} greedy accuracy; " if result.evaluation else ""
    console.print(f"{accuracy}saved in {result.checkpoint} after {result.steps} steps", soft_wrap=True, markup=False)


@app.command("eval")
def evaluate_checkpoint(
    checkpoint: Annotated[str, typer.Argument(help="Folder in Hugging Face format, or hub name.", show_default=False)],
    task: Annotated[str, typer.Option(help="Name of the task.")] = "arithmetic",
    task_options: Annotated[str, typer.Option(help="Options of the task, as JSON.")] = "{}",
    split: Annotated[str, typer.Option(help="train or test.")] = "test",
    problems: Annotated[int, typer.Option(help="The first so many problems; 0 for all.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1)] = 256,
    max_response_tokens: Annotated[int, typer.Option(min=1)] = 16,
    output: Annotated[Path | None, typer.Option(help="Write each problem and response here, as JSON lines.")] = None,
) -> None:
    """Greedy accuracy (pass@1) of a checkpoint, with a 95% confidence interval."""
    from tba_hpc.config import EvaluationConfig, TaskConfig
    from tba_hpc.evaluator import evaluate_checkpoint as evaluate
    from tba_hpc.settings import validate

    settings = validate(
        EvaluationConfig, {"split": split, "problems": problems, "batch_size": batch_size}, "options of eval"
    )
    if output:
        _check_writable(output)
    task_config = TaskConfig(name=task, options=_json_options(task_options))
    result = evaluate(checkpoint, task_config, settings, max_response_tokens)
    if output:
        lines = (json.dumps(asdict(record), ensure_ascii=False) for record in result.records)
        output.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    console = Console()
    low, high = result.confidence_interval
    console.print(
        f"{result.accuracy:.1%} of {result.problems} problems right (95% interval {low:.1%} to {high:.1%}); "
        f"{result.mean_response_length:.1f} tokens a response, {result.finished_fraction:.1%} finished",
        soft_wrap=True,
        highlight=False,
    )


def _check_writable(output: Path) -> None:
    existing = output if output.exists() else output.parent
    if not output.parent.is_dir() or output.is_dir() or not os.access(existing, os.W_OK):
        raise ConfigError(f"--output {str(output)!r} cannot be written: give a file in a folder that exists")


def _json_options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--task-options is not JSON: {error}") from error
    if not isinstance(options, dict):
        raise ConfigError(f"--task-options holds {type(options).__name__}, not an object")
    return options


def main() -> None:
    """Runs the command; a user's mistake ends in one readable message and exit code 2."""
    try:
        app()
    except ConfigError as error:
        show_error(error)
        sys.exit(2)
