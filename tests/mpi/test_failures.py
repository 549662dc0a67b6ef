"""One rank fails: the whole job ends, soon, and says who and why."""

import shutil

import pytest
from transformers import AutoModelForCausalLM

SOON = 10.0
"""Seconds from the failure to the end of the job."""


@pytest.fixture
def fail(run_mpi, tiny_run, tmp_path):
    """Runs 1 trainer and 2 searchers into a failure; returns what is left of the job and how long it took to end."""

    def run(mode, *overrides):
        mark = tmp_path / "mark"
        job = run_mpi(
            "failing_run", 3, mode, tiny_run, mark, f"run_dir={tmp_path}/run", "trainer.steps=1000", *overrides
        )
        return job, job.ended - mark.stat().st_mtime

    return run


def lines_of(job, who):
    return [line.removeprefix(f"[{who}] ") for line in job.stderr.splitlines() if line.startswith(f"[{who}] ")]


def test_a_reward_that_raises_on_a_searcher_ends_the_job_with_its_traceback(fail):
    job, seconds = fail("reward")
    assert job.code != 0
    lines = lines_of(job, "searcher 1 (rank 2)")
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == ["RuntimeError: no verdict on this", "ending the job"]
    assert any("failing_run.py" in line for line in lines)
    assert seconds < SOON


def test_an_exception_in_the_trainer_ends_the_job_with_its_traceback(fail):
    job, seconds = fail("trainer", "logging.samples_every=3")
    assert job.code != 0
    assert lines_of(job, "trainer 0 (rank 0)")[-2:] == ["RuntimeError: no text for this", "ending the job"]
    assert seconds < SOON


def test_a_searcher_that_just_dies_ends_the_job(fail):
    job, seconds = fail("exit")
    assert job.code != 0  # its own, or that of the ranks killed for it: the launcher picks one
    assert seconds < SOON


def test_a_searcher_with_another_model_is_refused_before_the_run_starts(run_mpi, tiny_run, tiny_model, tmp_path):
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    shutil.copytree(tiny_model, right / "model")
    shutil.copytree(tiny_model, wrong / "model")
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    model.resize_token_embeddings(20)
    model.save_pretrained(wrong / "model")
    job = run_mpi("other_weights", 3, tiny_run, right, wrong)
    assert job.code != 0
    message = "weights of searcher 1 (rank 2) do not match the trainer's: model.embed_tokens.weight [20, 32] float32 "
    errors = [line for line in lines_of(job, "searcher 1 (rank 2)") if line.startswith("ValueError")]
    assert len(errors) == 1, job.stderr
    assert message + "where the trainer has model.embed_tokens.weight [15, 32] float32" in errors[0]
    assert not (right / "run" / "final").exists()
