import pytest

from tba_hpc.distributed.searcher_exchange import SearcherStats


def test_a_header_carries_running_totals():
    stats = SearcherStats()
    stats.record(10, 50, 3, 1.5)
    stats.record(5, 20, 4, 0.5)
    stats.record_waiting(0.25)
    header = stats.header(7)[0]
    assert (header["generated"], header["tokens"], header["policy_version"]) == (15, 70, 4)
    assert (header["busy_seconds"], header["waiting_seconds"]) == (2.0, 0.25)
    assert header["trajectories"] == 7
    assert 0 <= header["idle_seconds"] < 60


def test_a_header_once_taken_does_not_change():
    stats = SearcherStats()
    header = stats.header(0)
    stats.record(10, 50, 3, 1.5)
    assert header["generated"] == [0]
    assert stats.header(0)["generated"] == pytest.approx(10)
