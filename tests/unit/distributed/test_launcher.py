import pytest
from mpi4py import MPI

from tba_hpc.distributed.launcher import check_launcher
from tba_hpc.settings import ConfigError


def test_tasks_of_srun_that_do_not_see_each_other_are_refused_naming_the_option():
    with pytest.raises(ConfigError) as caught:
        check_launcher(1, MPI.THREAD_MULTIPLE, {"SLURM_STEP_NUM_TASKS": "4"})
    message = str(caught.value)
    assert message.startswith("srun started 4 tasks but MPI sees a world of 1: the --mpi choice")
    for part in ("srun --mpi=pmi2", "srun --mpi=pmix", "srun --mpi=list", "MPICH"):
        assert part in message


@pytest.mark.parametrize(
    ("size", "environment"),
    [
        (4, {"SLURM_STEP_NUM_TASKS": "4"}),
        (1, {"SLURM_STEP_NUM_TASKS": "1"}),
        (1, {"SLURM_STEP_NUM_TASKS": ""}),
        (1, {"SLURM_NTASKS": "4"}),
        (1, {}),
    ],
)
def test_any_other_start_is_accepted(size, environment):
    check_launcher(size, MPI.THREAD_MULTIPLE, environment)


@pytest.mark.parametrize("level", [MPI.THREAD_SINGLE, MPI.THREAD_FUNNELED, MPI.THREAD_SERIALIZED])
def test_an_mpi_that_threads_may_not_share_is_refused(level):
    with pytest.raises(ConfigError, match="was not started with MPI_THREAD_MULTIPLE, which a run needs"):
        check_launcher(4, level, {})
