"""A run submitted to this machine: submitit's own processes, mpiexec and ranks."""

import json
import os
import signal
import time

import pytest

from tba_hpc.launch import submit

STEPS = 150
PACED = {"schedule": "synchronous", "rollout.emulate_seconds_per_token": 0.01}  # no machine is done before the signal


def steps_of(run_dir):
    path = run_dir / "metrics.jsonl"
    return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []


def wait_until(done, seconds, job):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, job.stdout()
        time.sleep(0.1)


@pytest.mark.slow
def test_a_run_on_this_machine_goes_on_after_a_signal_and_has_a_result(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_dir = tmp_path / "run"
    overrides = {**PACED, "trainer.steps": STEPS, "run_dir": run_dir}
    options = {"ranks_per_node": 2, "minutes": 10, "cluster": "local", "folder": tmp_path / "jobs"}
    job = submit(tiny_run, overrides=overrides, **options)
    try:
        wait_until(lambda: len(steps_of(run_dir)) >= 3, 90, job)
        os.kill(int(job.job_id), signal.SIGTERM)  # submitit's controller, which hands it on
        wait_until(job.paths.result_pickle.exists, 150, job)
    finally:
        job.cancel()
    assert job.result()["steps"] == STEPS
    assert steps_of(run_dir) == list(range(1, STEPS + 1))
    assert job.stdout().count("saved after step") == 1


def test_a_run_that_fails_raises_with_the_end_of_its_log(tiny_run, tmp_path):
    overrides = {"model.path": "/no/such/model", "run_dir": tmp_path / "run"}
    options = {"ranks_per_node": 2, "minutes": 10, "cluster": "local", "folder": tmp_path / "jobs"}
    job = submit(tiny_run, overrides=overrides, **options)
    try:
        with pytest.raises(Exception, match=r"the ranks ended with exit code 2 .*\n(.*\n)*.*/no/such/model"):
            job.result()
    finally:
        job.cancel()
