"""Both threads of trainer 0 and of the searchers at work."""

import re

import pytest


@pytest.fixture(scope="module")
def job(run_mpi, tiny_run):
    return run_mpi("exchange", 4, tiny_run)


def test_consecutive_versions_of_mixed_weights_arrive_bit_for_bit_in_several_buckets(job):
    """The searchers compare; a difference would end the job before trainer 0 reports."""
    assert job.values["buckets"] > 1
    for version, answers in enumerate(job.values["answers"]):
        assert answers == [[version, searcher] for searcher in range(3) for _ in range(3)]


def test_trajectories_count_for_the_sync_whose_weights_sampled_them(job):
    assert job.values["syncs"] == [sync for sync in range(1, 6) for _ in range(3)]


def test_a_busy_main_thread_holds_up_neither_rounds_nor_weights(job):
    """Searchers were busy until told to stop, so had trainer 0 waited for them it would have waited for ever."""
    assert len(job.values["generated"]) >= 20
    assert set(job.values["generated"]) == {5 * 3 * 3}


def test_communication_threads_have_the_gpu_of_their_rank_and_the_group_ends_with_them(job):
    """So they do on the searchers, which check it themselves."""
    assert job.values["threads"] == ["exchange"]
    assert job.values["closed"] == [0, 1]


def test_a_searcher_that_hangs_in_a_commit_is_the_one_named(job):
    """Its communication thread waits with it, while the others receive weights."""
    assert job.code != 0
    errors = re.findall(r"^\[trainer 0 \(rank 0\), communication thread\] TimeoutError: (.*)$", job.stderr, re.M)
    assert len(errors) == 1, job.stderr
    assert re.findall(r"searcher \d+", errors[0]) == ["searcher 1"]
    assert "after 3 s" in errors[0]
