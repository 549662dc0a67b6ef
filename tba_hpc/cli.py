"""The `tba-hpc` command. Heavy imports happen inside the commands that need them: `--help` should not load torch."""

from __future__ import annotations

import json
import os
import sys
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
Overwrite = Annotated[bool, typer.Option(help="Delete an earlier run in the run directory.")]
Resume = Annotated[
    str | None,
    typer.Option(help="auto: go on from the newest checkpoint of the run, if there is one. Or a checkpoint's folder."),
]


@app.command()
def train(
    config: ConfigFile,
    overrides: Overrides = None,
    ranks: Annotated[int | None, typer.Option(help="Start this many MPI ranks on this machine.")] = None,
    mpiexec: Annotated[str | None, typer.Option(help="MPI launcher to start them with, with its options.")] = None,
    srun: Annotated[bool, typer.Option("--srun", help="Start a rank on each task of this Slurm job.")] = False,
    overwrite: Overwrite = False,
    resume: Resume = None,
) -> None:
    """Asynchronous TBA over MPI ranks.

    With --ranks or --srun it starts them itself; under mpirun or srun it is one of them."""
    from tba_hpc.launch.command import inside_mpi_world, launched_tasks, rank_command

    if overwrite and resume:
        raise ConfigError("--overwrite deletes the run that --resume goes on with: give one of them")
    if srun and ranks is not None:
        raise ConfigError("--ranks starts ranks on this machine, --srun on all nodes of the job: give one of them")
    if ranks is None and not srun and inside_mpi_world(os.environ):
        sys.exit(_run_rank(config, overrides or [], overwrite, resume))
    from tba_hpc.config import load_run_config

    settings = load_run_config(config, overrides or [])
    if ranks is None and not srun:
        raise ConfigError(
            "how many ranks? Give --ranks N (at least 2), or --srun inside a Slurm job, or start this command with "
            "mpirun or srun"
        )
    if (tasks := launched_tasks(os.environ)) > 1:
        raise ConfigError(
            f"{'--srun' if srun else f'--ranks {ranks}'} would start so many ranks from each of the {tasks} tasks that "
            "a launcher has started: leave it out, or start this command once"
        )
    command = rank_command(config, overrides or [], overwrite, resume)
    if ranks is None:
        from tba_hpc.launch.slurm import run_by_srun

        sys.exit(run_by_srun(command, os.environ))
    from tba_hpc.launch.local import run_local

    settings.check_world(ranks)
    run_local(command, ranks, mpiexec)


def _run_rank(config: Path, overrides: list[str], overwrite: bool, resume: str | None) -> int:
    from tba_hpc.interruption import Interruption

    interruption = Interruption()  # before anything slow: a signal would end a process that has no handler yet
    from mpi4py import MPI

    from tba_hpc.distributed.abort import abort_on_error
    from tba_hpc.distributed.launcher import check_launcher
    from tba_hpc.distributed.leaving import leave

    comm = MPI.COMM_WORLD
    check_launcher(comm.size, MPI.Query_thread(), os.environ)
    with abort_on_error(comm, f"rank {comm.rank}"):
        from tba_hpc.run import run_rank

        code = run_rank(comm, config, overrides, overwrite, resume, interruption)
    leave(code)
    return code


@app.command("submit")
def submit_run(
    config: ConfigFile,
    ranks_per_node: Annotated[int, typer.Option(help="Ranks on each node.", show_default=False)],
    minutes: Annotated[int, typer.Option(help="Time limit; then the run saves itself and is started again.")],
    overrides: Overrides = None,
    nodes: Annotated[int, typer.Option(help="Nodes of the job.")] = 1,
    gpus_per_node: Annotated[int, typer.Option(help="GPUs on each node.")] = 0,
    cpus_per_task: Annotated[int, typer.Option(help="Processor cores for each rank.")] = 1,
    partition: Annotated[str | None, typer.Option()] = None,
    account: Annotated[str | None, typer.Option()] = None,
    sbatch: Annotated[list[str] | None, typer.Option(help="Another option of sbatch, as qos=long. Repeatable.")] = None,
    mpi: Annotated[str | None, typer.Option(help="srun's --mpi. Default: TBA_HPC_MPI, or else pmi2.")] = None,
    name: Annotated[str, typer.Option(help="Name of the job.")] = "tba",
    cluster: Annotated[str, typer.Option(help="slurm; or local, for mpiexec on this machine.")] = "slurm",
    folder: Annotated[Path, typer.Option(help="For scripts and logs; all nodes must see it.")] = Path("runs/submitit"),
    grid: Annotated[
        list[str] | None,
        typer.Option(help="A sweep over the values of a setting, as seed=1,2,3. Repeatable: all combinations."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the batch script and submit nothing.")] = False,
) -> None:
    """Submits training as a job that is requeued until the run has finished; a sweep as a job array."""
    from tba_hpc.launch.overrides import parsed_grid, parsed_options
    from tba_hpc.launch.submission import batch_script, describe, submit, submit_sweep

    job = {
        "nodes": nodes,
        "ranks_per_node": ranks_per_node,
        "minutes": minutes,
        "gpus_per_node": gpus_per_node,
        "cpus_per_task": cpus_per_task,
        "partition": partition,
        "account": account,
        "sbatch": parsed_options(sbatch or []),
        "mpi": mpi,
        "name": name,
        "cluster": cluster,
        "folder": folder,
    }
    values = parsed_grid(grid or []) or None
    if dry_run:
        typer.echo(batch_script(config, values, overrides=overrides or [], **job))
        return
    if values:
        jobs = submit_sweep(config, values, overrides=overrides or [], **job)
    else:
        jobs = [submit(config, overrides=overrides or [], **job)]
    for submitted in jobs:
        typer.echo(describe(submitted))


@app.command()
def sft(
    config: ConfigFile,
    overrides: Overrides = None,
    srun: Annotated[bool, typer.Option("--srun", help="Start it on the one task of this Slurm job.")] = False,
    overwrite: Overwrite = False,
    resume: Resume = None,
) -> None:
    """Supervised fine-tuning: the warm-up that reinforcement learning starts from."""
    from tba_hpc.launch.command import launched_tasks, rank_command

    if overwrite and resume:
        raise ConfigError("--overwrite deletes the run that --resume goes on with: give one of them")
    if (tasks := launched_tasks(os.environ)) > 1:
        raise ConfigError(f"sft is a single process, but a launcher has started {tasks} tasks: ask for one")
    if srun:
        from tba_hpc.launch.slurm import run_by_srun

        sys.exit(run_by_srun(rank_command(config, overrides or [], overwrite, resume, command="sft"), os.environ))
    from tba_hpc.interruption import Interruption

    interruption = Interruption()  # before anything slow: a signal would end a process that has no handler yet
    from tba_hpc.config import load_sft_config

    settings = load_sft_config(config, overrides or [])
    from tba_hpc.sft.run import run_sft

    sys.exit(run_sft(settings, interruption, Console(), resume, overwrite))


@app.command()
def compare(
    config: ConfigFile,
    objectives: Annotated[
        str,
        typer.Option(help="As tb_vargrad,grpo; with its own schedule as grpo:synchronous.", show_default=False),
    ],
    overrides: Overrides = None,
    schedules: Annotated[str, typer.Option(help="asynchronous,synchronous: each objective with each of them.")] = "",
    seeds: Annotated[str, typer.Option(help="As 0,1,2.")] = "0",
    ranks: Annotated[int, typer.Option(help="MPI ranks of each run, on this machine.")] = 4,
    mpiexec: Annotated[str | None, typer.Option(help="MPI launcher to start them with, with its options.")] = None,
    target: Annotated[
        float | None, typer.Option(help="Accuracy to time. Default: that which the least accurate ends with.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="For the runs and the result.")] = Path("runs/compare"),
) -> None:
    """Objectives and schedules side by side: the same task, model, batch and budget for each.

    Runs that have finished in the folder are taken as they are, and interrupted
    ones go on, so more can be added later."""
    from tba_hpc.compare.command import run_compare
    from tba_hpc.compare.plan import plan, variants

    compared = variants(_words(objectives), _words(schedules))
    runs = plan(config, compared, _numbers(seeds), folder, ranks, overrides or [])
    console = Console(width=None if sys.stdout.isatty() else 120)  # in a file, the table needs more than the usual 80
    sys.exit(run_compare(config, runs, folder, ranks, mpiexec, target, console))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in _words(text)] or [0]
    except ValueError as error:
        raise ConfigError(f"--seeds {text}: not whole numbers with commas between them") from error


@app.command()
def doctor(
    run_dir: Annotated[Path, typer.Argument(help="Where runs are to write.")] = Path("runs"),
) -> None:
    """Says whether this node can run a job, and what to mend. Under mpirun or srun, whether all its nodes can."""
    from tba_hpc.doctor.command import run_doctor

    sys.exit(run_doctor(run_dir, Console()))


@app.command("eval")
def evaluate_checkpoint(
    checkpoint: Annotated[str, typer.Argument(help="Folder in Hugging Face format, or hub name.", show_default=False)],
    task: Annotated[str, typer.Option(help="Name of the task.")] = "arithmetic",
    task_path: Annotated[Path | None, typer.Option(help="Python file with the task, if it is one of yours.")] = None,
    task_options: Annotated[str, typer.Option(help="Options of the task, as JSON.")] = "{}",
    split: Annotated[str, typer.Option(help="train or test.")] = "test",
    problems: Annotated[int, typer.Option(help="The first so many problems; 0 for all.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Most responses generated at a time.")] = 256,
    max_response_tokens: Annotated[
        int | None, typer.Option(help="Default: 512, or half of the model's positions if that is less.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(help="A text that ends a response. Repeatable.")] = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    samples: Annotated[int, typer.Option(help="Sample so many responses to each problem, too.")] = 0,
    temperature: Annotated[float | None, typer.Option(help="Of the samples. Default: 1.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Of the samples. Default: 1.")] = None,
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
    k: Annotated[
        str | None, typer.Option(help="For pass@k and maj@k, as 1,4,16. Default: powers of two up to --samples.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write problems and responses here as they are done, as JSON lines.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write --output anew if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Greedy accuracy (pass@1) of a checkpoint, and with --samples its pass@k and maj@k, with 95% intervals.

    pass@k: how likely one of k samples is right. maj@k: how likely the answer
    is right that most of k samples give; of several, the one that came first.
    Intervals are for the choice of problems. Progress: on standard error."""
    from tba_hpc.eval_command import EvalOptions, run_eval
    from tba_hpc.settings import validate

    values = {
        "checkpoint": checkpoint,
        "task": {"name": task, "path": task_path, "options": _json_options(task_options)},
        "split": split,
        "problems": problems,
        "batch_size": batch_size,
        "max_response_tokens": max_response_tokens,
        "stop": stop or [],
        "dtype": dtype,
        "samples": samples,
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
        "k": k.split(",") if k is not None else None,
        "output": output,
        "overwrite": overwrite,
        "as_json": as_json,
    }
    run_eval(validate(EvalOptions, values, "options of eval"), Console(), Console(stderr=True))


@app.command()
def grade(
    task: Annotated[str, typer.Option(help="Name of the task.", show_default=False)],
    task_path: Annotated[Path | None, typer.Option(help="Python file with the task, if it is one of yours.")] = None,
    task_options: Annotated[str, typer.Option(help="Options of the task, as JSON.")] = "{}",
) -> None:
    """Grades responses that you have: a look at a reward before it is trained on.

    Reads lines {"response": …, "answer": …} on standard input, writes lines
    {"reward": …, "extracted": …, "why": …}. What else a task needs stands
    beside the answer, or in an object "prompt"."""
    from tba_hpc.config import TaskConfig
    from tba_hpc.grade_command import grade_lines
    from tba_hpc.tasks import make_task

    the_task = make_task(TaskConfig(name=task, path=task_path, options=_json_options(task_options)))
    with os.fdopen(sys.stdin.fileno(), "rb", closefd=False) as source:
        grade_lines(the_task, source, sys.stdout.buffer)


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
