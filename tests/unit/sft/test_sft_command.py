"""The command in a process of its own, as a shell or Slurm starts it."""

import os
import signal
import sys
import time

import pytest
import yaml
from sft_cases import settings
from written import steps_of

from tba_hpc.checkpoint_folder import newest
from tba_hpc.cli import main
from tba_hpc.interruption import SAVED_EXIT_CODE
from tba_hpc.sft.checkpoint import SftCheckpoint


@pytest.fixture
def file(tmp_path):
    """The configuration of a run that takes longer than any test."""
    path = tmp_path / "sft.yaml"
    steady = {"kind": "constant", "value": 0.001}
    long = settings(tmp_path / "run", {"problems": 0}, max_steps=10**6, learning_rate=steady)
    path.write_text(yaml.safe_dump(long))
    return path


def test_a_signal_has_the_run_saved_and_the_exit_code_says_so(start, file, tmp_path):
    job = start([sys.executable, "-m", "tba_hpc", "sft", str(file), "--resume", "auto"])
    deadline = time.monotonic() + 90
    while len(steps_of(tmp_path / "run")) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(job.pid, signal.SIGTERM)
    done = job.result(30)
    step = newest(tmp_path / "run" / "checkpoints", SftCheckpoint).state().step
    assert done.code == SAVED_EXIT_CODE, done.output
    assert f"saved after step {step} (received SIGTERM); --resume auto goes on" in done.stdout
    assert steps_of(tmp_path / "run") == list(range(1, step + 1))


@pytest.fixture
def command(monkeypatch, capfd):
    """Runs the command in this process; returns exit code and output."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def run(*words, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["tba-hpc", "sft", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, "".join(capfd.readouterr())

    return run


@pytest.mark.parametrize(
    ("words", "variables", "message"),
    [
        (["--overwrite", "--resume", "auto"], {}, "--overwrite deletes the run that --resume goes on with"),
        ([], {"SLURM_STEP_NUM_TASKS": "2"}, "sft is a single process, but a launcher has started 2 tasks"),
        (["--srun"], {}, "no Slurm allocation here"),
    ],
)
def test_what_cannot_be_meant_is_refused(command, file, words, variables, message):
    code, output = command(file, *words, **variables)
    assert code == 2
    assert message in output


def test_srun_gets_the_command_word_for_word(command, file, tmp_path):
    (tmp_path / "srun").write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\nexit 7\n')
    (tmp_path / "srun").chmod(0o755)
    slurm = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "17", "SLURM_JOB_END_TIME": "2000000000"}
    override = 'run_dir=a run\'s $HOME "quoted"'
    code, output = command(file, override, "--srun", "--resume", "auto", **slurm)
    words = [sys.executable, "-m", "tba_hpc", "sft", str(file), "--resume", "auto", override]
    assert output.splitlines()[1:] == ["--kill-on-bad-exit=1", "--mpi=pmi2", *words]
    assert code == 7
