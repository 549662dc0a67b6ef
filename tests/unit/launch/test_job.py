"""What a submitit job makes of the exit code of its ranks."""

import json
import os
import sys

import pytest
from submitit.local.local import LOCAL_REQUEUE_RETURN_CODE

from tba_hpc.interruption import END_TIME_VARIABLE, SAVED_EXIT_CODE
from tba_hpc.launch import job as module
from tba_hpc.launch.job import TrainingJob
from tba_hpc.launch.slurm import NotRequeuedError


@pytest.fixture
def job(tmp_path):
    """The job of a run, by cluster."""
    (tmp_path / "report.json").write_text(json.dumps({"steps": 6}))

    def make(cluster):
        return TrainingJob("/c.yaml", ("seed=1",), str(tmp_path), cluster, 4, 30, "pmix", ("-l",))

    return make


@pytest.fixture
def launched(monkeypatch):
    """Pretends that ranks end with a code; what started them is in `words` and `environment`."""
    seen = {}

    def pretend(code):
        def supervise(words, environment):
            seen.update(words=words, environment=environment)
            return code

        monkeypatch.setattr(module, "supervise", supervise)
        monkeypatch.setattr(module, "supervise_srun", supervise)
        return seen

    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", "2000000000")
    return pretend


RANK = [sys.executable, "-m", "tba_hpc", "train", "/c.yaml", "--resume", "auto", "seed=1"]


def test_ranks_are_started_by_srun_and_go_on_from_the_newest_checkpoint(job, launched):
    seen = launched(0)
    assert job("slurm")() == {"steps": 6}
    assert seen["words"] == ["srun", "--kill-on-bad-exit=1", "--mpi=pmix", "-l", *RANK]
    assert seen["environment"]["SLURM_JOB_ID"] == "17"


def test_on_this_machine_by_mpiexec_with_the_end_of_this_attempt(job, launched, monkeypatch):
    monkeypatch.setattr(module.time, "time", lambda: 1_000_000_000.5)
    seen = launched(0)
    assert job("local")() == {"steps": 6}
    assert seen["words"][1:] == ["-n", "4", *RANK]
    assert seen["environment"][END_TIME_VARIABLE] == "1000001800"
    assert "SLURM_JOB_ID" not in seen["environment"]


def test_a_run_that_saved_itself_is_requeued_and_has_no_result(job, launched, monkeypatch):
    requeued = []
    monkeypatch.setattr(module, "requeue", requeued.append)
    launched(SAVED_EXIT_CODE)
    with pytest.raises(SystemExit):
        job("slurm")()
    assert requeued == [os.environ]


def test_where_slurm_refuses_that_the_result_says_why(job, launched, monkeypatch):
    def refuse(_):
        raise NotRequeuedError("no")

    monkeypatch.setattr(module, "requeue", refuse)
    launched(SAVED_EXIT_CODE)
    with pytest.raises(NotRequeuedError):
        job("slurm")()


def test_on_this_machine_submitit_starts_it_again(job, launched):
    launched(SAVED_EXIT_CODE)
    with pytest.raises(SystemExit) as ended:
        job("local")()
    assert ended.value.code == LOCAL_REQUEUE_RETURN_CODE


def test_ranks_that_fail_are_reported_with_the_end_of_the_log(job, launched, monkeypatch, tmp_path):
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setenv("SUBMITIT_FOLDER", str(tmp_path))
    (tmp_path / "17_0_log.out").write_text("".join(f"line {number}.\n" for number in range(100)))
    launched(3)
    with pytest.raises(RuntimeError, match="ended with exit code 3 after") as error:
        job("slurm")()
    assert str(error.value).endswith("line 98.\nline 99.\n")
    assert "line 69." not in str(error.value)
    assert str(tmp_path / "17_0_log.out") in str(error.value)
