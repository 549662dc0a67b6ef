"""Trainers among themselves, and the end of a run."""

import pytest


@pytest.fixture(scope="module")
def values(run_mpi, tiny_run):
    job = run_mpi("trainer_group", 4, tiny_run)
    assert job.code == 0, job.output
    return job.values


def test_every_trainer_gets_its_share_also_if_it_is_empty_and_sums_agree(values):
    """The trainers themselves compare what they got. Between any two batches trainer 0 waited for longer than they have
    patience, and sent signs of life."""
    assert values["sums"] == [[6, 3], [2, 3], [5, 3]]


def test_groups_are_closed_at_the_end(values):
    assert values["closed"] == 2


def test_a_trainer_that_hears_nothing_says_from_whom(values):
    trainer_0, *others, searcher = values["silence"]
    assert trainer_0 == searcher == ""
    for index, text in enumerate(others, start=1):
        assert text.startswith(f"trainer {index} hears nothing from trainer 0: ")


def test_trainer_0_names_the_rank_that_does_not_come_to_an_end(values):
    leader, *others = values["errors"]
    assert leader == "at the end of the run, after 1 s, still at work: rank 3"
    assert all("is done, but trainer 0 was not within 1 s" in other for other in others)
