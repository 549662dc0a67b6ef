import shutil
import sys
from pathlib import Path

import pytest

from tba_hpc.interruption import END_TIME_VARIABLE
from tba_hpc.launch.local import local_environment, local_words, mpiexec_words
from tba_hpc.settings import ConfigError


@pytest.fixture
def python_beside(tmp_path, monkeypatch):
    """Pretends that this Python lies in a folder of its own."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path


def test_the_launcher_given_is_used_with_its_options():
    assert mpiexec_words("mpirun --oversubscribe -x 'A=b c'") == ["mpirun", "--oversubscribe", "-x", "A=b c"]


def test_the_launcher_beside_this_python_goes_before_that_on_path(python_beside):
    (python_beside / "mpiexec").touch()
    assert mpiexec_words(None) == [str(python_beside / "mpiexec")]


def test_without_one_beside_it_is_looked_for_on_path(python_beside, monkeypatch):
    monkeypatch.setattr(shutil, "which", {"mpiexec": "/site/mpiexec"}.get)
    assert mpiexec_words(None) == ["/site/mpiexec"]


def test_without_any_the_user_is_told_what_to_do(python_beside, monkeypatch):
    monkeypatch.setenv("PATH", str(python_beside))
    assert not (Path(sys.executable).parent / "mpiexec").exists()
    with pytest.raises(ConfigError, match=r"no mpiexec found: load the site's MPI module, or `pip install"):
        mpiexec_words(None)


def test_ranks_on_this_machine_are_so_many():
    assert local_words(["python", "x"], 3, "mpirun -v") == ["mpirun", "-v", "-n", "3", "python", "x"]


def test_ranks_on_this_machine_know_nothing_of_a_job_but_its_end():
    job = {"PATH": "/bin", "SLURM_JOB_ID": "17", "SLURM_NODELIST": "n[1-2]", "SLURM_JOB_END_TIME": "2000000000"}
    assert local_environment(job) == {"PATH": "/bin", END_TIME_VARIABLE: "2000000000"}
    assert local_environment({"PATH": "/bin"}) == {"PATH": "/bin"}
