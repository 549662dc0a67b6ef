"""`tba-hpc doctor`: every check, by one rank or by all of them, and the page."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from rich.console import Console

from tba_hpc.doctor.finding import Finding, check, show
from tba_hpc.doctor.gpus import Gpus, ask_gpus, driver_version, gpu_finding
from tba_hpc.doctor.node import node_findings
from tba_hpc.doctor.slurm import slurm_findings
from tba_hpc.doctor.software import mpiexec_finding, package_findings, wheel_finding
from tba_hpc.doctor.storage import own_file_system, storage_findings
from tba_hpc.doctor.world import (
    RankReport,
    World,
    clock_finding,
    findings_elsewhere,
    meet,
    mpi_findings,
    prints_page,
    sharing_findings,
    visible_finding,
)


def run_doctor(run_dir: Path, console: Console, meeting_seconds: float = 300.0) -> int:
    """Looks at this node and, as one of several ranks, at all of theirs. Rank 0 prints the page, the others add to it.
    Returns the exit code: 1 if there is a problem. Every wait has a bound, that for the other ranks is
    `meeting_seconds`, and a check that fails is a finding.

    For a process that has not started MPI and does not mean to."""
    gpus = ask_gpus()
    own = _own_findings(gpus)
    report = RankReport(
        host=socket.gethostname(),
        cores=sorted(os.sched_getaffinity(0)),
        gpus=[device["uuid"] for device in gpus.devices],
        findings=own,
    )
    world = meet(report, run_dir, meeting_seconds)
    if not prints_page(world, os.environ):
        if world.error:
            sys.stderr.write(f"tba-hpc doctor on {report.host}: MPI: {world.error}\n")
        return 0
    page = [
        *own,
        *check("mpiexec", lambda: [mpiexec_finding(world.library)]),
        *check("MPI", lambda: mpi_findings(world, os.environ)),
        *check("ranks", lambda: _findings_together(world, run_dir)),
        *check("run_dir", lambda: storage_findings(run_dir)),
        *check("Slurm", lambda: slurm_findings(world.library, os.environ)),
    ]
    show(page, console)
    return int(any(finding.level == "problem" for finding in page))


def _own_findings(gpus: Gpus) -> list[Finding]:
    """What every rank looks at for itself."""
    return [
        *check("packages", lambda: package_findings(metadata.requires("tba_hpc") or [])),
        *check("MPI wheel", lambda: [wheel_finding()]),
        *check("node", node_findings),
        *check("GPU", lambda: [gpu_finding(gpus, driver_version(), os.environ)]),
    ]


def _findings_together(world: World, run_dir: Path) -> Iterator[Finding]:
    if world.size == 1 or world.error:
        return
    reports = world.rank_reports
    yield from sharing_findings(reports)
    if world.seen:
        yield visible_finding(world, own_file_system(run_dir).is_node_local)
    yield clock_finding(world)
    yield from findings_elsewhere(reports)
