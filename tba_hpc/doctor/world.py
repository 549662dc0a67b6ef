"""What the ranks have found out together, as findings."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tba_hpc.doctor.asking import NoAnswerError, answer_of
from tba_hpc.doctor.finding import Finding, Level, judge
from tba_hpc.launch.command import launched_tasks

_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_LARGEST_SKEW_SECONDS = 1.0
_LISTED = 8  # hosts by name


@dataclass(frozen=True, slots=True)
class World:
    """What one rank has learned of all of them; on others than rank 0 the lists are empty."""

    rank: int = 0
    size: int = 1
    library: str = ""
    """First line of what the MPI library says of itself."""
    refusal: str = ""
    """Why a run would not start, as `check_launcher` says."""
    reports: list[str] = field(default_factory=list)
    """A `RankReport` of every rank, as JSON."""
    seen: list[bool] = field(default_factory=list)
    """Whether each rank saw what rank 0 wrote to the run directory; empty where it could not write."""
    clocks: list[float] = field(default_factory=list)
    """By how many seconds each rank's clock is ahead of that of rank 0."""
    error: str = ""
    """Why MPI did not start, or the ranks did not come together."""

    @property
    def rank_reports(self) -> list[RankReport]:
        return [RankReport.from_json(text) for text in self.reports]


@dataclass(frozen=True, slots=True)
class RankReport:
    """What a rank tells the others of itself."""

    host: str
    cores: list[int]
    """Those it may run on."""
    gpus: list[str]
    """UUIDs of those it sees."""
    findings: list[Finding]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> RankReport:
        values = json.loads(text)
        return RankReport(**values | {"findings": [Finding(**finding) for finding in values["findings"]]})


def meet(report: RankReport, run_dir: Path, seconds: float) -> World:
    """Has the ranks come together, within so many seconds or not at all."""
    try:
        return World(**answer_of("tba_hpc.doctor.ranks", [str(run_dir)], report.to_json(), seconds))
    except NoAnswerError as error:
        return World(error=str(error))


def prints_page(world: World, environment: Mapping[str, str]) -> bool:
    """Whether this is rank 0. The launcher tells where MPI does not: of N worlds of one each has a rank 0."""
    if world.error or (world.size == 1 and launched_tasks(environment) > 1):
        return int(next((environment[name] for name in _RANK_VARIABLES if name in environment), 0)) == 0
    return world.rank == 0


def mpi_findings(world: World, environment: Mapping[str, str]) -> Iterator[Finding]:
    if world.error:
        advice = (
            "load the MPI that mpi4py was built for, or `pip install 'tba_hpc[mpich]'` where there is none; under srun "
            "try another choice of `srun --mpi=list`; where MPI does not start on login nodes, run this in a job"
        )
        yield Finding("problem", "MPI", world.error, advice)
    elif world.refusal:
        yield Finding("problem", "MPI", f"{world.library}: a run would not start", world.refusal)
    else:
        yield Finding("ok", "MPI", f"{world.library}, MPI_THREAD_MULTIPLE")
        yield size_finding(world, environment)


def size_finding(world: World, environment: Mapping[str, str]) -> Finding:
    """MPI's number of ranks beside the launcher's and the job's."""
    launched, tasks = launched_tasks(environment), int(environment.get("SLURM_NTASKS") or 1)
    if world.size < launched:
        advice = f"use the launcher that belongs to {world.library}: its own mpiexec, or srun with the fitting --mpi"
        return Finding("problem", "ranks", f"MPI sees {world.size} of the {launched} tasks of the launcher", advice)
    n_ranks = Counter(report.host for report in world.rank_reports)
    text = f"{world.size}: " + _listed([f"{n} on {host}" for host, n in n_ranks.items()])
    alone = launched == world.size == 1 < tasks
    advice = f"`srun --mpi=pmi2 -n {tasks} tba-hpc doctor` (or --mpi=pmix) looks at all {tasks} tasks of this job"
    return Finding("ok", "ranks", text, advice if alone else "")


def sharing_findings(reports: Sequence[RankReport]) -> Iterator[Finding]:
    """Ranks that have to share the cores or the GPUs of their node."""
    if len(reports) < 2:
        return
    yield _shared("rank cores", reports, lambda report: report.cores, "warning", "set OMP_NUM_THREADS=1, or use fewer")
    n_without = sum(not report.gpus for report in reports)
    advice = "give each rank a GPU of its own, or set CUDA_VISIBLE_DEVICES= (empty) for all of them to run on CPUs"
    if n_without == 0:
        yield _shared("rank GPUs", reports, lambda report: report.gpus, "problem", advice)
    elif n_without < len(reports):
        yield Finding("problem", "rank GPUs", f"{n_without} of {len(reports)} ranks see none", advice)


def _shared(
    name: str,
    reports: Sequence[RankReport],
    things_of: Callable[[RankReport], Iterable[object]],
    level: Level,
    advice: str,
) -> Finding:
    n_ranks, things = Counter(report.host for report in reports), defaultdict[str, set[object]](set)
    for report in reports:
        things[report.host].update(things_of(report))
    short = [host for host in n_ranks if n_ranks[host] > len(things[host])]
    listed = _listed([f"{n_ranks[host]} ranks share {len(things[host])} on {host}" for host in short])
    return judge(not short, level, name, listed or "at least one for each rank", advice)


def visible_finding(world: World, is_node_local: bool) -> Finding:
    """Whether the run directory is one and the same for all ranks; for a world where rank 0 could write there."""
    blind = [report.host for report, seen in zip(world.rank_reports, world.seen, strict=True) if not seen]
    if not blind:
        return Finding("ok", "run_dir shared", f"all {world.size} ranks read and write it")
    text = f"{len(blind)} of {world.size} ranks do not see what rank 0 writes, on {_listed(sorted(set(blind)))}"
    reason = ", as file systems of this type belong to one node" if is_node_local else ""
    advice = f"choose a run_dir on storage that all nodes share{reason}"
    return Finding("problem", "run_dir shared", text, advice)


def clock_finding(world: World) -> Finding:
    """Between ranks."""
    rank = max(range(world.size), key=lambda rank: abs(world.clocks[rank]))
    skew, host = world.clocks[rank], world.rank_reports[rank].host
    if abs(skew) <= _LARGEST_SKEW_SECONDS:
        return Finding("ok", "clocks", f"ranks within {abs(skew):.3f} s of rank 0")
    text = f"that of {host} (rank {rank}) is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} rank 0's"
    return Finding("warning", "clocks", text, "times in logs mislead: ask the site's support about NTP there")


def findings_elsewhere(reports: Sequence[RankReport]) -> Iterator[Finding]:
    """Warnings and problems of other ranks that rank 0 does not have itself, each once with the hosts it is from."""
    hosts: dict[Finding, list[str]] = {}
    for report in reports[1:]:
        for finding in report.findings:
            if finding.level != "ok" and finding not in reports[0].findings:
                hosts.setdefault(finding, []).append(report.host)
    for finding, where in hosts.items():
        yield replace(finding, text=f"{finding.text} (on {_listed(sorted(set(where)))})")


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
    return ", ".join(items[:_LISTED]) + more
