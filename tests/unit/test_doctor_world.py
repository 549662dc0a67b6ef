"""What the ranks find out together, from made-up reports."""

from dataclasses import replace

import pytest
from doctor_cases import PAGE, assert_found, rank, world_of

from tba_hpc.doctor.finding import Finding
from tba_hpc.doctor.world import (
    RankReport,
    World,
    clock_finding,
    findings_elsewhere,
    mpi_findings,
    prints_page,
    sharing_findings,
    size_finding,
    visible_finding,
)


def test_a_report_travels_as_json():
    report = rank(gpus=["GPU-7"], findings=PAGE)
    assert RankReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("world", "environment", "prints"),
    [
        (World(rank=0, size=3), {"PMI_RANK": "0", "PMI_SIZE": "3"}, True),
        (World(rank=1, size=3), {"PMI_RANK": "1", "PMI_SIZE": "3"}, False),
        (World(), {}, True),
        (World(), {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, True),
        (World(), {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}, False),
        (World(error="aborted"), {"PMI_RANK": "1", "SLURM_PROCID": "0"}, False),
        (World(error="aborted"), {}, True),
    ],
)
def test_one_rank_prints_also_where_mpi_cannot_tell_which(world, environment, prints):
    assert prints_page(world, environment) is prints


def test_an_mpi_that_does_not_start_or_is_refused_is_a_problem():
    (finding,) = mpi_findings(World(error="exit code 1: RuntimeError: cannot load MPI library"), {})
    assert_found(finding, "problem", "cannot load MPI library", "srun --mpi=list")
    (finding,) = mpi_findings(world_of(rank(), refusal="srun started 4 tasks but MPI sees a world of 1"), {})
    assert_found(finding, "problem", "MPICH", "srun started 4 tasks")
    first, second = mpi_findings(world_of(rank()), {})
    assert_found(first, "ok", "MPICH Version: 5.0.2, MPI_THREAD_MULTIPLE")
    assert_found(second, "ok", "1: 1 on n1")


@pytest.mark.parametrize(
    ("n", "environment", "level", "text"),
    [
        (4, {"SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "8"}, "ok", "4: 4 on n1"),
        (4, {"SLURM_STEP_NUM_TASKS": "2"}, "ok", "4: 4 on n1"),
        (1, {"PMI_SIZE": "4"}, "problem", "MPI sees 1 of the 4 tasks"),
        (2, {"SLURM_STEP_NUM_TASKS": "4"}, "problem", "MPI sees 2 of the 4 tasks"),
    ],
)
def test_the_world_is_as_large_as_the_launcher_meant_it(n, environment, level, text):
    assert_found(size_finding(world_of(*[rank()] * n), environment), level, text)


def test_alone_in_a_job_of_several_tasks_it_says_how_to_look_at_all():
    finding = size_finding(world_of(rank()), {"SLURM_NTASKS": "4"})
    assert finding.level == "ok"
    assert "srun --mpi=pmi2 -n 4 tba-hpc doctor" in finding.advice


def test_many_hosts_are_shortened():
    finding = size_finding(world_of(*(rank(f"n{number}") for number in range(20))), {})
    assert finding.text.startswith("20: 1 on n0, 1 on n1, ")
    assert finding.text.endswith("1 on n7 and 12 more")


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([rank()], []),
        ([rank(cores=[0, 1])] * 2, [("ok", "at least one")]),
        ([rank(cores=[0]), rank(cores=[1])], [("ok", "at least one")]),
        ([rank(cores=[0]), rank("n2", cores=[0])], [("ok", "at least one")]),
        ([rank(cores=[0, 1])] * 3 + [rank("n2")], [("warning", "3 ranks share 2 on n1 → ")]),
        ([rank(gpus=["a", "b"])] * 2, [("ok", ""), ("ok", "at least one")]),
        ([rank(gpus=["a"]), rank(gpus=["b"])], [("ok", ""), ("ok", "at least one")]),
        ([rank(gpus=["a"])] * 2, [("ok", ""), ("problem", "2 ranks share 1 on n1 → give each rank a GPU")]),
        ([rank(gpus=["a"]), rank()], [("ok", ""), ("problem", "1 of 2 ranks see none")]),
    ],
)
def test_ranks_that_share_cores_or_gpus_are_counted_by_host(reports, expected):
    findings = list(sharing_findings(reports))
    assert len(findings) == len(expected)
    for finding, (level, text) in zip(findings, expected, strict=True):
        assert_found(finding, level, text)


def test_a_run_directory_that_other_hosts_do_not_share_is_a_problem():
    reports = [rank("n1"), rank("n2"), rank("n2"), rank("n3")]
    assert_found(visible_finding(world_of(*reports, seen=[True] * 4), True), "ok", "all 4 ranks")
    blind = world_of(*reports, seen=[True, False, False, True])
    assert_found(visible_finding(blind, True), "problem", "2 of 4 ranks do not see", "on n2 ", "belong to one node")
    assert "belong" not in visible_finding(blind, False).advice


def test_a_clock_that_is_off_is_named():
    reports = [rank("n1"), rank("n2"), rank("n3")]
    assert_found(clock_finding(world_of(*reports, clocks=[0.0, -0.5, 0.2])), "ok", "within 0.500 s")
    assert_found(clock_finding(world_of(*reports, clocks=[0.0, 0.5, -3.0])), "warning", "n3 (rank 2) is 3.0 s behind")
    assert_found(clock_finding(world_of(*reports, clocks=[0.0, 1.5, -1.0])), "warning", "n2 (rank 1) is 1.5 s ahead")


def test_what_others_find_is_told_once_with_their_hosts():
    fine, here, there = Finding("ok", "cores", "2"), PAGE[1], PAGE[2]
    reports = [rank("n1", findings=[here]), *(rank(host, findings=[fine, here, there]) for host in ("n3", "n2", "n3"))]
    (finding,) = findings_elsewhere(reports)
    assert finding == replace(there, text="broken (on n2, n3)")
