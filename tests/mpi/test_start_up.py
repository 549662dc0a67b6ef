"""A start-up that goes wrong says so on the ranks that know, soon, and with the name of the culprit."""

import re

import pytest


@pytest.fixture(scope="module")
def outcomes(run_mpi, tiny_run):
    """By case what each rank said."""
    job = run_mpi("start_up", 3, tiny_run)
    assert job.code == 0, job.output
    return {case: [text.split(" ", 1)[1] for text in texts] for case, texts in job.values.items()}


def test_ranks_with_and_without_a_number_of_threads_start_together(outcomes):
    assert outcomes["mixed_threads"] == ["cpu"] * 3


def test_a_mixture_of_devices_is_refused_on_every_rank(outcomes):
    message = "ConfigError: ranks [1] see a GPU and ranks [0, 2] do not"
    assert all(text.startswith(message) for text in outcomes["mixed_devices"])


def test_ranks_that_share_a_gpu_are_named_and_told_what_to_do(outcomes):
    for rank, text in enumerate(outcomes["shared_gpu"]):
        assert re.match(r"ConfigError: ranks \[0, 1, 2\] on \S+ share GPU GPU-7, which NCCL cannot serve: ", text)
        assert f"a GPU of its own (rank {rank} sees 1, and 3 ranks run on its node)" in text


def test_a_rank_that_does_not_come_to_a_group_is_named_within_the_bound_of_the_start_up(outcomes):
    message = "TimeoutError: start-up: after 1 s group 'weights' still waits for rank 2"
    assert outcomes["missing_rank"] == [message, message, ""]


def test_a_group_that_does_not_connect_is_given_up(outcomes):
    message = "TimeoutError: start-up: every rank has come to group 'gradients', but after 1 s they are not connected: "
    assert outcomes["no_connection"][2].startswith(message)


def test_trainer_0_does_not_say_that_it_waits_for_trainer_0(outcomes):
    leader, *others = outcomes["text_that_is_not_taken"]
    assert leader == "TimeoutError: start-up: after 1 s not every rank has taken what trainer 0 sends"
    assert others == ["", ""]
