import errno
import fcntl
import os

import pytest

from tba_hpc.run_lock import RunLock
from tba_hpc.settings import ConfigError


def test_one_run_at_a_time(tmp_path):
    first, second = RunLock(tmp_path, {}), RunLock(tmp_path, {})
    first.acquire()
    first.acquire()
    with pytest.raises(ConfigError, match=rf"in use by a run \(process {os.getpid()} on .*\); give another run_dir"):
        second.acquire()
    del first
    second.acquire()


def test_a_job_that_was_requeued_does_not_wait_for_itself(tmp_path):
    first = RunLock(tmp_path, {"SLURM_JOB_ID": "17"})
    first.acquire()
    RunLock(tmp_path, {"SLURM_JOB_ID": "17"}).acquire()
    for other in ({}, {"SLURM_JOB_ID": "1"}, {"SLURM_JOB_ID": "171"}):
        with pytest.raises(ConfigError, match="in use by a run \\(job 17, process"):
            RunLock(tmp_path, other).acquire()


def test_a_file_system_without_locks_is_no_hindrance(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    RunLock(tmp_path, {}).acquire()
    assert "is not locked: No locks available" in caplog.text
