"""The rounds between trainer 0 and the searchers, without anything on top."""

import re

import pytest


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_payload_arrives_as_it_was_sent(run_mpi, ranks):
    rounds, chunk, largest = 300, 64, 400
    job = run_mpi("rounds", ranks, rounds, chunk, largest)
    assert job.code == 0, job.output
    values = job.values
    assert values["rounds"] == rounds
    assert values["wrong"] == []
    assert values["shares"] == rounds * (ranks - 1)
    assert values["empty"] > rounds / 5
    assert values["largest"] > 3 * chunk


@pytest.fixture(scope="module")
def stalls(run_mpi):
    job = run_mpi("stalls", 4)
    assert job.code == 0, job.output
    return job.values


@pytest.mark.parametrize(
    ("case", "searcher"), [("before control", 0), ("before control", 1), ("before control", 2), ("before header", 1)]
)
def test_the_leader_names_exactly_the_searcher_that_stopped_polling(stalls, case, searcher):
    leader, *searchers = stalls[f"{case} {searcher}"]
    seconds, message = leader.split(" ", 1)
    assert re.findall(r"searcher \d+", message) == [f"searcher {searcher}"]
    assert message.startswith("round 4, ")
    assert 1.0 <= float(seconds) < 2.0
    for index, text in enumerate(searchers):
        assert ("nothing from trainer 0" in text) == (index != searcher)


def test_searchers_do_not_wait_for_ever_for_a_silent_trainer(stalls):
    leader, *searchers = stalls["silent trainer"]
    assert leader == ""
    for text in searchers:
        assert re.search(r"round 4, control record: after 2 s still nothing from trainer 0", text)
