"""Made-up findings and ranks for the tests of the doctor."""

from __future__ import annotations

from tba_hpc.doctor.finding import Finding
from tba_hpc.doctor.world import RankReport, World

MPICH, OPEN_MPI = "MPICH Version: 5.0.2", "Open MPI v5.0.11, package: Open MPI"
PAGE = [
    Finding("ok", "one", "fine"),
    Finding("warning", "two", "x" * 200 + " [bold]", "mind that"),
    Finding("problem", "three", "broken", "mend it " + "y" * 200),
]


def assert_found(finding, level, *parts):
    assert finding.level == level, finding
    assert (finding.advice != "") == (level != "ok"), finding
    for part in parts:
        assert part in f"{finding.text} → {finding.advice}"


def rank(host="n1", cores=(0, 1, 2, 3), gpus=(), findings=()):
    return RankReport(host, list(cores), list(gpus), list(findings))


def world_of(*reports, **values):
    return World(size=len(reports), library=MPICH, reports=[report.to_json() for report in reports], **values)
