from types import SimpleNamespace

import numpy as np
import pytest

from tba_hpc.departure import Departure


def departure(signal=None, searchers=(False, False), trainers=False, end=False):
    asked = []
    deadline = SimpleNamespace(has_come=lambda seconds: asked.append(seconds) or end)
    return Departure(
        SimpleNamespace(signal=signal and SimpleNamespace(name=signal)),
        SimpleNamespace(interrupted=np.array(searchers)),
        SimpleNamespace(interrupted=lambda: trainers),
        deadline,
    ), asked


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        ({"signal": "SIGTERM", "end": True}, "trainer 0 received SIGTERM"),
        ({"searchers": (False, True)}, "a signal reached searcher 1"),
        ({"trainers": True}, "a signal reached another trainer"),
        ({"end": True}, "the job is about to end"),
        ({}, None),
    ],
)
def test_whoever_was_asked_to_leave_is_named(who, reason):
    subject, _ = departure(**who)
    assert subject.reason(save_seconds=3.0) == reason


def test_the_deadline_counts_the_time_that_a_save_takes():
    subject, asked = departure()
    subject.reason(save_seconds=12.5)
    assert asked == [12.5]
