"""Graders' worker processes beside MPI."""


def test_every_rank_grades_with_a_worker_of_its_own_that_is_no_rank(run_mpi):
    """The launcher's variables are there for the ranks (PMI_SIZE), and a worker that saw them would hang or end all."""
    job = run_mpi("grading", 2, seconds=200)
    assert job.code == 0, job.output
    assert job.values["ranks"] == [{"right": [True, False, True, False], "again": [True], "size": 2}] * 2
