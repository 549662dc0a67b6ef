import sys
from pathlib import Path

import pytest

from tba_hpc.launch.command import inside_mpi_world, rank_command


def test_the_command_of_a_rank_is_this_python_running_the_train_command():
    command = rank_command(Path("a b.yaml"), ["x=$y"], overwrite=False)
    assert command == [sys.executable, "-m", "tba_hpc", "train", "a b.yaml", "x=$y"]
    assert rank_command(Path("c"), [], overwrite=True)[-2:] == ["c", "--overwrite"]


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
