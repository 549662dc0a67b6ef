"""What srun is told. scontrol is a stand-in here; tests/slurm has the real one."""

import os
import shlex

import pytest

from tba_hpc.interruption import END_TIME_VARIABLE, SAVED_EXIT_CODE
from tba_hpc.launch import slurm as module
from tba_hpc.launch.slurm import (
    NotRequeuedError,
    job_name,
    requeue,
    run_by_srun,
    srun_environment,
    srun_words,
    supervise_srun,
)
from tba_hpc.settings import ConfigError

JOB = {"SLURM_JOB_ID": "17", "PATH": "/bin", "SLURM_JOB_END_TIME": "2000000000"}
COMMAND = ["python", "-m", "tba_hpc", "train", "a b.yaml"]


def test_srun_starts_the_command_on_every_task():
    assert srun_words(COMMAND, JOB) == ["srun", "--kill-on-bad-exit=1", "--mpi=pmi2", *COMMAND]


def test_the_site_chooses_mpi_and_binding():
    site = {"TBA_HPC_MPI": "pmix", "TBA_HPC_SRUN_ARGS": "--gpu-bind=none --export='A=b c,ALL'"}
    expected = ["srun", "--kill-on-bad-exit=1", "--mpi=pmix", "--gpu-bind=none", "--export=A=b c,ALL", *COMMAND]
    assert srun_words(COMMAND, JOB | site) == expected


def test_what_is_given_goes_before_what_the_site_says():
    site = {"TBA_HPC_MPI": "pmix", "TBA_HPC_SRUN_ARGS": "--gpu-bind=none"}
    assert srun_words(["x"], JOB | site, "pmi2", ()) == ["srun", "--kill-on-bad-exit=1", "--mpi=pmi2", "x"]


@pytest.mark.parametrize(("size", "expected"), [("1", []), ("2", ["--het-group=0,1"]), ("3", ["--het-group=0,1,2"])])
def test_all_components_of_a_heterogeneous_job_take_part(size, expected):
    assert srun_words(["x"], JOB | {"SLURM_HET_SIZE": size})[3:-1] == expected


def test_outside_a_job_the_user_is_told_what_to_do():
    with pytest.raises(
        ConfigError, match=r"no Slurm allocation here .* with sbatch, use `tba-hpc submit`, or .* --ranks N"
    ):
        srun_words(COMMAND, {"PATH": "/bin"})


def test_unbalanced_quotes_are_named():
    with pytest.raises(ConfigError, match=r"TBA_HPC_SRUN_ARGS = .*: No closing quotation"):
        srun_words(COMMAND, JOB | {"TBA_HPC_SRUN_ARGS": "--export='A"})


def test_ranks_get_the_environment_less_what_was_not_meant_for_them():
    sbatch = {"SBATCH_ACCOUNT": "a", "SBATCH_TIMELIMIT": "1", "SLURM_EXPORT_ENV": "NONE"}
    launcher = {"PMI_RANK": "3", "PMI_FD": "9", "PMIX_NAMESPACE": "n", "OMPI_COMM_WORLD_SIZE": "4"}
    assert srun_environment(JOB | sbatch | launcher | {END_TIME_VARIABLE: "1000000000"}) == JOB | {
        END_TIME_VARIABLE: "2000000000"
    }


def test_a_job_without_an_end_has_none(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")  # no squeue to ask
    assert END_TIME_VARIABLE not in srun_environment({"SLURM_JOB_ID": "17"})


def test_srun_is_told_the_cores_of_a_task():
    assert srun_environment(JOB | {"SLURM_CPUS_PER_TASK": "8"})["SRUN_CPUS_PER_TASK"] == "8"
    own = {"SLURM_CPUS_PER_TASK": "8", "SRUN_CPUS_PER_TASK": "4"}
    assert srun_environment(JOB | own)["SRUN_CPUS_PER_TASK"] == "4"


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "17"),
        ({"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}, "12_3"),
        ({"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "0"}, "17_0"),
        ({"SLURM_HET_JOB_ID": "16", "SLURM_HET_SIZE": "2"}, "16"),
    ],
)
def test_a_job_is_requeued_by_a_name_that_means_it_alone(variables, name):
    assert job_name(JOB | variables) == name


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """Puts a scontrol on PATH that answers `show` with the facts given; returns what else it was asked to do."""
    calls = tmp_path / "calls"

    def install(facts, requeue_code=0):
        program = f"""#!/bin/sh
            if [ "$1" = show ]; then echo {shlex.quote(facts)}; exit; fi
            echo "$@" >> {calls}
            [ {requeue_code} = 0 ] || echo 'slurm_requeue error: Requested operation is presently disabled' >&2
            exit {requeue_code}
        """
        (tmp_path / "scontrol").write_text(program)
        (tmp_path / "scontrol").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    install.calls = lambda: calls.read_text().splitlines() if calls.exists() else []
    return install


@pytest.mark.parametrize(
    "facts",
    [
        "JobId=17 JobState=RUNNING Reason=None Restarts=0",
        "JobId=17 JobState=COMPLETING Reason=TimeLimit Restarts=0",
        "slurm_load_jobs error: Unable to contact slurm controller",
    ],
)
def test_a_job_that_saved_itself_is_requeued(scontrol, facts):
    scontrol(facts)
    requeue(JOB)
    assert scontrol.calls() == ["requeue 17"]


def test_a_job_that_someone_has_cancelled_stays_cancelled(scontrol):
    scontrol("JobId=17 JobState=COMPLETING Reason=None Restarts=0")
    with pytest.raises(NotRequeuedError, match=r"job 17 was cancelled, so it is not requeued\. .* --resume auto"):
        requeue(JOB)
    assert scontrol.calls() == []


@pytest.mark.parametrize(("before", "now", "calls"), [("", 1, []), ("1", 2, []), ("1", 1, ["requeue 17"])])
def test_a_job_that_is_requeued_already_is_left_alone(scontrol, before, now, calls):
    state = "RUNNING" if calls else "COMPLETING"
    scontrol(f"JobId=17 JobState={state} Reason=None Restarts={now}")
    requeue(JOB | {"SLURM_RESTART_COUNT": before})
    assert scontrol.calls() == calls


def test_a_refusal_of_slurm_tells_how_to_go_on_by_hand(scontrol):
    scontrol("JobId=17 JobState=RUNNING Reason=None Restarts=0", requeue_code=1)
    with pytest.raises(
        NotRequeuedError, match=r"did not requeue job 17 \(slurm_requeue error: .*\)\. .* --resume auto"
    ):
        requeue(JOB)


@pytest.mark.parametrize(("restarts", "steps_before"), [("", 0), ("2", 2)])
def test_no_two_attempts_of_a_job_have_the_same_step_number(monkeypatch, restarts, steps_before):
    calls = []
    monkeypatch.setattr(module, "supervise", lambda words, environment: calls.append(words) or 7)
    assert supervise_srun(["srun", *COMMAND], JOB | {"SLURM_RESTART_COUNT": restarts}) == 7
    assert [words[-1] for words in calls[:-1]] == ["true"] * steps_before
    assert calls[-1] == ["srun", *COMMAND]


@pytest.fixture
def srun_returns(monkeypatch):
    """Pretends that srun ends with a code."""

    def pretend(code):
        monkeypatch.setattr(module, "supervise", lambda words, environment: code)

    return pretend


def test_each_attempt_has_a_line_in_the_log(srun_returns, capfd):
    srun_returns(0)
    assert run_by_srun(COMMAND, JOB | {"SLURM_RESTART_COUNT": "2", "SLURM_JOB_NODELIST": "n[1-2]"}) == 0
    assert capfd.readouterr().out == (
        "job 17, attempt 3, on n[1-2]: srun --kill-on-bad-exit=1 --mpi=pmi2 python -m tba_hpc train 'a b.yaml'\n"
    )


def test_a_run_that_saved_itself_has_its_job_requeued(srun_returns, scontrol, capfd):
    scontrol("JobId=17 JobState=RUNNING Reason=None Restarts=0")
    srun_returns(SAVED_EXIT_CODE)
    assert run_by_srun(COMMAND, JOB) == SAVED_EXIT_CODE
    assert scontrol.calls() == ["requeue 17"]
    assert "job 17 is requeued" in capfd.readouterr().out


@pytest.mark.parametrize("code", [0, 1, 143])
def test_a_run_that_ended_otherwise_does_not(srun_returns, scontrol, code):
    scontrol("JobId=17 JobState=RUNNING Reason=None Restarts=0")
    srun_returns(code)
    assert run_by_srun(COMMAND, JOB) == code
    assert scontrol.calls() == []


def test_a_requeue_that_is_refused_keeps_the_exit_code(srun_returns, scontrol, capfd):
    scontrol("JobId=17 JobState=RUNNING Reason=None Restarts=0", requeue_code=1)
    srun_returns(SAVED_EXIT_CODE)
    assert run_by_srun(COMMAND, JOB) == SAVED_EXIT_CODE
    assert "error: Slurm did not requeue job 17" in capfd.readouterr().err
