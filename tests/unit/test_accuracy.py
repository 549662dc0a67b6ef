import pytest
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.accuracy import Accuracy, wilson_interval


def test_an_accuracy_is_a_share_with_its_interval():
    accuracy = Accuracy(81, 263)
    assert accuracy.share == 81 / 263
    assert accuracy.interval == wilson_interval(81, 263)


@pytest.mark.parametrize(
    ("successes", "trials", "expected"),
    [(0, 10, (0.0, 0.2775)), (5, 10, (0.2366, 0.7634)), (10, 10, (0.7225, 1.0)), (81, 263, (0.2553, 0.3662))],
)
def test_wilson_interval_has_the_published_values(successes, trials, expected):
    assert wilson_interval(successes, trials) == pytest.approx(expected, abs=1e-4)


@given(st.integers(1, 10**6), st.data())
def test_wilson_interval_contains_the_proportion_and_stays_in_the_unit_interval(trials, data):
    successes = data.draw(st.integers(0, trials))
    low, high = wilson_interval(successes, trials)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1
    assert high - low <= wilson_interval(1, 2)[1]
