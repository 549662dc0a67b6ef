import time

from tba_hpc.distributed.waiting import wait_until


def test_waits_until_it_is_so():
    asked = []

    def third_time():
        asked.append(time.monotonic())
        return len(asked) == 3

    assert wait_until(third_time, 30)
    assert len(asked) == 3


def test_asks_at_least_once_however_short_the_time():
    assert wait_until(lambda: True, 0)
    assert not wait_until(lambda: False, 0)


def test_gives_up_after_its_time_without_asking_all_the_while():
    asked = []
    started = time.monotonic()
    assert not wait_until(lambda: bool(asked.append(0)), 0.2, longest_pause=0.01)
    assert time.monotonic() - started >= 0.2
    assert len(asked) < 60
