"""Slurm on this node, and the job that this process is part of."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence

from tba_hpc.doctor.asking import Ask, NoAnswerError, output_of
from tba_hpc.doctor.finding import Finding, judge
from tba_hpc.doctor.software import mpi_family
from tba_hpc.interruption import job_end

_CHOICES = {"Open MPI": "pmix", "MPICH": "pmi2"}
"""`srun --mpi` by the family of the MPI library."""


def slurm_findings(library: str, environment: Mapping[str, str], ask: Ask = output_of) -> Iterator[Finding]:
    """`library` as MPI says of itself; empty if it was not loaded."""
    if not shutil.which("srun", path=environment.get("PATH")):
        yield Finding("ok", "Slurm", "not on this node: start ranks with --ranks or mpirun")
        return
    try:
        yield Finding("ok", "Slurm", ask(["srun", "--version"]).strip())
        yield mpi_choice_finding(library, mpi_choices(ask(["srun", "--mpi=list"])))
        yield kill_finding(ask(["scontrol", "show", "config"]))
        if job_id := environment.get("SLURM_JOB_ID"):
            yield requeue_finding(ask(["scontrol", "show", "job", job_id]))
            yield end_finding(job_end(environment), time.time())
    except NoAnswerError as error:
        yield Finding("warning", "Slurm", f"does not answer: {error}", "start ranks with mpirun, or have Slurm mended")


def mpi_choices(listed: str) -> list[str]:
    """Those that `srun --mpi=list` prints, one a line since Slurm 21 and with `srun: ` in front before that."""
    lines = (line.removeprefix("srun:").strip() for line in listed.splitlines())
    return [line for line in lines if re.fullmatch(r"\w+", line)]


def mpi_choice_finding(library: str, choices: Sequence[str]) -> Finding:
    wanted = _CHOICES.get(mpi_family(library), "")
    offered = any(choice.startswith(wanted) for choice in choices)
    text = f"srun offers {', '.join(choices)}; {library or 'MPI'} takes {wanted or 'one of them'}"
    advice = "start ranks with mpirun inside the job, or use an MPI that takes what srun offers"
    return judge(offered, "warning", "srun --mpi", text, advice)


def kill_finding(config: str) -> Finding:
    """What happens to a step one of whose ranks dies; `config` as `scontrol show config` prints it."""
    if re.search(r"KillOnBadExit\s*=\s*1", config):
        return Finding("ok", "Slurm dead rank", "ends its step (KillOnBadExit=1)")
    return Finding("ok", "Slurm dead rank", "leaves the others hanging", "start ranks with srun --kill-on-bad-exit=1")


def requeue_finding(job: str) -> Finding:
    """`job` as `scontrol show job` prints it."""
    advice = "submit with sbatch --requeue, so that Slurm starts it again by itself"
    return judge("Requeue=1" in job, "warning", "Slurm requeue", "yes" if "Requeue=1" in job else "no", advice)


def end_finding(end: float | None, now: float) -> Finding:
    """Both in seconds since the epoch."""
    if end is None:
        advice = "submit with sbatch --time, so that a run knows when to save"
        return Finding("warning", "Slurm end of job", "none known", advice)
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(end))
    return Finding("ok", "Slurm end of job", f"{clock}, in {(end - now) / 60:.0f} minutes")
