import pytest

from tba_hpc.accuracy import Accuracy
from tba_hpc.distributed.searcher_exchange import SearcherStats


def test_a_header_carries_running_totals():
    stats = SearcherStats()
    stats.record(10, 50, 1.5)
    stats.record(5, 20, 0.5)
    stats.record_version(4)
    stats.record_waiting(0.25)
    header = stats.header(7)[0]
    assert (header["generated"], header["tokens"], header["policy_version"]) == (15, 70, 4)
    assert (header["busy_seconds"], header["waiting_seconds"]) == (2.0, 0.25)
    assert header["trajectories"] == 7
    assert 0 <= header["idle_seconds"] < 60


def test_a_header_tells_how_the_last_evaluation_went():
    stats = SearcherStats()
    assert stats.header(0)["evaluation"] == [0]
    stats.record_evaluation(6, 8, Accuracy(3, 5))
    names = ("evaluation", "evaluation_version", "evaluation_correct", "evaluation_problems")
    assert [int(stats.header(0)[name][0]) for name in names] == [6, 8, 3, 5]


def test_a_header_once_taken_does_not_change():
    stats = SearcherStats()
    header = stats.header(0)
    stats.record(10, 50, 1.5)
    assert header["generated"] == [0]
    assert stats.header(0)["generated"] == pytest.approx(10)
