import sys
from pathlib import Path

import pytest

from tba_hpc.launch.command import inside_mpi_world, launched_tasks, rank_command, without_job, without_rank


def test_the_command_of_a_rank_is_this_python_running_the_train_command():
    command = rank_command(Path("a b.yaml"), ["x=$y"], overwrite=False)
    assert command == [sys.executable, "-m", "tba_hpc", "train", "a b.yaml", "x=$y"]
    assert rank_command(Path("c"), [], overwrite=True)[-2:] == ["c", "--overwrite"]
    assert rank_command(Path("c"), ["x=1"], resume="a b")[-4:] == ["c", "--resume", "a b", "x=1"]


@pytest.mark.parametrize(
    ("environment", "inside"),
    [
        ({}, False),
        ({"SLURM_NTASKS": "4", "SLURM_JOB_ID": "1"}, False),
        ({"SLURM_STEP_NUM_TASKS": "1"}, False),
        ({"SLURM_STEP_NUM_TASKS": ""}, False),
        ({"SLURM_STEP_NUM_TASKS": "4"}, True),
        ({"PMI_RANK": "0"}, True),
        ({"PMIX_RANK": "3"}, True),
        ({"OMPI_COMM_WORLD_RANK": "0"}, True),
    ],
)
def test_a_rank_knows_that_it_is_one(environment, inside):
    assert inside_mpi_world(environment) == inside


@pytest.mark.parametrize(
    ("environment", "tasks"),
    [
        ({}, 1),
        ({"SLURM_NTASKS": "4", "PMI_RANK": "0", "PMI_SIZE": "1", "SLURM_STEP_NUM_TASKS": "1"}, 1),
        ({"SLURM_STEP_NUM_TASKS": ""}, 1),
        ({"SLURM_STEP_NUM_TASKS": "4"}, 4),
        ({"PMI_SIZE": "3"}, 3),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, 2),
    ],
)
def test_the_tasks_of_a_launcher_are_counted(environment, tasks):
    assert launched_tasks(environment) == tasks


def test_an_environment_without_rank_keeps_everything_else():
    rank = ("PMI_RANK", "PMI_SIZE", "PMI_FD", "PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
    other = {"PATH": "/bin", "SLURM_JOB_ID": "7", "PMIX_MCA_gds": "hash", "OMPI_MCA_btl": "self", "MPI_HOME": "/mpi"}
    assert without_rank(dict.fromkeys(rank, "0") | other) == other


def test_an_environment_without_job_keeps_where_slurm_is():
    job = (
        "SLURM_JOB_ID",
        "SLURM_NODELIST",
        "SLURMD_NODENAME",
        "SRUN_CPUS_PER_TASK",
        "SBATCH_ACCOUNT",
        "SUBMITIT_FOLDER",
    )
    other = {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "TBA_HPC_MPI": "pmi2"}
    assert without_job(dict.fromkeys(job, "0") | {"PMI_RANK": "0"} | other) == other
