"""Starting a run inside a Slurm allocation, by srun, and having Slurm start it again when it has saved itself."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence

from rich.console import Console

from tba_hpc.interruption import END_TIME_VARIABLE, SAVED_EXIT_CODE, job_end
from tba_hpc.launch.command import without_rank
from tba_hpc.launch.supervise import supervise
from tba_hpc.progress import show_error
from tba_hpc.settings import ConfigError

MPI_VARIABLE = "TBA_HPC_MPI"
"""Environment variable with the `--mpi` choice of srun, which has to fit the MPI library."""
ARGUMENTS_VARIABLE = "TBA_HPC_SRUN_ARGS"
"""Environment variable with more options for srun, quoted as for a shell."""
DEFAULT_MPI = "pmi2"
"""For MPICH and its kin."""

_SCONTROL_SECONDS = 60
_BY_HAND = "The run has saved itself: start it again, with --resume auto and the same run_dir, and it goes on"
_LEFT_BY_SBATCH = re.compile(r"SBATCH_|SLURM_EXPORT_ENV$")


def run_by_srun(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs `command` on every task of the allocation that `environment` describes, and returns srun's exit code.

    After `SAVED_EXIT_CODE` the job is requeued; where that cannot be, standard error says how to go on by hand. Raises
    `ConfigError` outside an allocation."""
    code = supervise_srun(srun_words(command, environment), environment)
    if code == SAVED_EXIT_CODE:
        try:
            requeue(environment)
            _say(f"the run has saved itself; job {job_name(environment)} is requeued to go on with it")
        except NotRequeuedError as error:
            show_error(error)
    return code


def supervise_srun(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the srun of `srun_words` to its end and returns its exit code; see `supervise`. Its first line of output
    tells the attempts of a job apart.

    A job that is requeued counts its steps from 0 again, and MPICH names its shared memory after job and step: ranks
    would wait forever on what is left of an attempt that was killed. So each attempt takes a step more."""
    own, restarts = srun_environment(environment), _restarts(environment)
    nodes = environment.get("SLURM_JOB_NODELIST", "?")
    _say(f"job {job_name(environment)}, attempt {restarts + 1}, on {nodes}: {shlex.join(words)}")
    for _ in range(restarts):
        supervise(["srun", "--nodes=1", "--ntasks=1", "--mpi=none", "true"], own)
    return supervise(words, own)


def _say(text: str) -> None:
    Console(soft_wrap=True, highlight=False, markup=False).print(text)


def _restarts(environment: Mapping[str, str]) -> int:
    return int(environment.get("SLURM_RESTART_COUNT") or 0)


def srun_words(
    command: Sequence[str],
    environment: Mapping[str, str],
    mpi: str | None = None,
    arguments: Sequence[str] | None = None,
) -> list[str]:
    """The srun that starts `command` on every task of the allocation. `mpi` and `arguments` are those of the
    environment when not given. Raises `ConfigError` outside an allocation."""
    if "SLURM_JOB_ID" not in environment:
        raise ConfigError(
            "no Slurm allocation here (SLURM_JOB_ID is not set): submit a file from slurm/ with sbatch, use "
            "`tba-hpc submit`, or start ranks on this machine with --ranks N"
        )
    components = int(environment.get("SLURM_HET_SIZE") or 1)
    groups = ",".join(map(str, range(components)))
    return [
        "srun",
        "--kill-on-bad-exit=1",  # otherwise the other ranks of one that was killed would wait for it
        f"--mpi={mpi or mpi_choice(environment)}",
        *([f"--het-group={groups}"] if components > 1 else []),
        *(srun_arguments(environment) if arguments is None else arguments),
        *command,
    ]


def mpi_choice(environment: Mapping[str, str]) -> str:
    return environment.get(MPI_VARIABLE) or DEFAULT_MPI


def srun_arguments(environment: Mapping[str, str]) -> list[str]:
    """Raises `ConfigError` for unbalanced quotes."""
    try:
        return shlex.split(environment.get(ARGUMENTS_VARIABLE, ""))
    except ValueError as error:
        raise ConfigError(f"{ARGUMENTS_VARIABLE} = {environment[ARGUMENTS_VARIABLE]!r}: {error}") from error


def srun_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` for srun and the ranks: with the end of this job, without what was meant for sbatch or comes from a
    launcher around it.

    SLURM_EXPORT_ENV, left behind by `sbatch --export=…`, would keep the rest of the environment from the ranks."""
    kept = {name: value for name, value in without_rank(environment).items() if not _LEFT_BY_SBATCH.match(name)}
    kept.pop(END_TIME_VARIABLE, None)  # of a job around this one
    if end := job_end(kept):
        kept[END_TIME_VARIABLE] = str(int(end))
    if cpus := kept.get("SLURM_CPUS_PER_TASK"):
        kept.setdefault("SRUN_CPUS_PER_TASK", cpus)  # srun does not take it over from sbatch since Slurm 22.05
    return kept


class NotRequeuedError(RuntimeError):
    """The run has saved itself but will not be started again."""


def job_name(environment: Mapping[str, str]) -> str:
    """What scontrol calls this job alone. The id of the last task of an array is that of the whole array, too; a
    heterogeneous job goes by the id of its first component, which is the one that runs the batch script."""
    if task := environment.get("SLURM_ARRAY_TASK_ID"):
        return f"{environment['SLURM_ARRAY_JOB_ID']}_{task}"
    return environment.get("SLURM_HET_JOB_ID") or environment["SLURM_JOB_ID"]


def requeue(environment: Mapping[str, str]) -> None:
    """Has Slurm start this job again, also where its time limit is ending it already. Raises `NotRequeuedError` where
    that is refused, or where someone has cancelled the job, which Slurm would requeue all the same."""
    job, facts = job_name(environment), _facts(environment["SLURM_JOB_ID"])
    if int(facts.get("Restarts", 0)) > _restarts(environment):
        return  # someone, or a preemption, was faster
    if facts.get("JobState") in ("COMPLETING", "CANCELLED") and facts.get("Reason") != "TimeLimit":
        raise NotRequeuedError(f"job {job} was cancelled, so it is not requeued. {_BY_HAND}")
    try:
        _scontrol("requeue", job)
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip()
        raise NotRequeuedError(f"Slurm did not requeue job {job} ({reason}). {_BY_HAND}") from error


def _facts(job_id: str) -> dict[str, str]:
    """What scontrol says of the job; nothing where it does not answer."""
    try:
        words = _scontrol("show", "job", "--oneliner", job_id).split()
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def _scontrol(*words: str) -> str:
    result = subprocess.run(["scontrol", *words], capture_output=True, text=True, timeout=_SCONTROL_SECONDS, check=True)
    return result.stdout
