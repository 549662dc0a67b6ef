"""Signals to real ranks under a real launcher."""

import os
import signal
import sys
import time

import pytest
from crash_test import pid_of_rank
from written import steps_of

from tba_hpc.checkpoint import newest_checkpoint
from tba_hpc.interruption import SAVED_EXIT_CODE
from tba_hpc.launch.local import mpiexec_words

SETTINGS = ["trainer.steps=100000", "distributed.trainers=2", "evaluation.problems=0", "checkpoint.every_steps=null"]
WHO = {
    "a searcher": (3, signal.SIGUSR1, "a signal reached searcher 1"),
    "another trainer": (1, signal.SIGTERM, "a signal reached another trainer"),
    "trainer 0": (0, signal.SIGUSR2, "trainer 0 received SIGUSR2"),
}
"""The rank that gets a signal, which one, and what the run says then. Signals to the launcher: see the tests of runs on
this machine and of Slurm jobs."""


@pytest.mark.slow
def test_a_signal_to_whomever_has_the_run_saved_and_it_goes_on_from_there(start, tiny_run, tmp_path):
    run_dir = tmp_path / "run"
    words = [*mpiexec_words(None), "-n", "4", sys.executable, "-m", "tba_hpc", "train", str(tiny_run)]
    saved = 0
    for rank, number, reason in WHO.values():
        job = start([*words, "--resume", "auto", f"run_dir={run_dir}", *SETTINGS])
        wait_for_step(run_dir, saved + 3)
        os.kill(pid_of_rank(rank, tiny_run), number)
        done = job.result(60)
        assert done.code == SAVED_EXIT_CODE, done.output
        assert reason in done.output
        steps = steps_of(run_dir)
        saved = newest_checkpoint(run_dir / "checkpoints").state().step
        assert steps == list(range(1, saved + 1))


def wait_for_step(run_dir, step):
    deadline = time.monotonic() + 90
    while step not in steps_of(run_dir):
        assert time.monotonic() < deadline, f"step {step} was not done"
        time.sleep(0.05)
