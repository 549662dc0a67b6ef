from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.accuracy import Accuracy, MeanShare, majority_at_k, majority_is_right, pass_at_k, wilson_interval


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


@pytest.mark.parametrize("values", [[0, 1, 1], [1.0] * 7, [0.0], [0.0] * 3 + [1.0] * 5])
def test_the_interval_of_right_and_wrong_answers_is_that_of_their_accuracy(values):
    mean, accuracy = MeanShare.of(values), Accuracy(int(sum(values)), len(values))
    assert (mean.share, mean.problems) == (accuracy.share, accuracy.problems)
    assert mean.interval == pytest.approx(accuracy.interval, abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_the_interval_of_a_mean_contains_it_and_is_no_wider_than_that_of_as_many_right_and_wrong_answers(values):
    mean = MeanShare.of(values)
    low, high = mean.interval
    widest = wilson_interval(mean.share * len(values), len(values))
    assert widest[0] - 1e-9 <= low <= mean.share + 1e-9
    assert mean.share - 1e-9 <= high <= widest[1] + 1e-9


def test_the_interval_of_a_mean_covers_it_as_often_as_it_says():
    """Beta-distributed problems: many hopeless, some easy, as in practice."""
    random = np.random.default_rng(0)
    samples = random.beta(0.3, 0.9, size=(2000, 60))
    intervals = [MeanShare.of(values.tolist()).interval for values in samples]
    covered = np.mean([low <= 0.25 <= high for low, high in intervals])
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize("values", [[0.5] * 10, [0.1] * 3, [0.3], [0.0, 7e-234]])
def test_values_without_spread_are_not_taken_for_certain(values):
    n = len(values)
    assert MeanShare.of(values).interval == pytest.approx(wilson_interval(values[0] * n, n))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_all_choices_of_k_that_hold_a_right_one(n):
    for correct in range(n + 1):
        responses = [True] * correct + [False] * (n - correct)
        for k in range(1, n + 1):
            choices = list(combinations(responses, k))
            assert pass_at_k(n, correct, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)


RIGHT, WRONG, OTHER, NONE = ("7", True), ("8", False), ("9", False), (None, False)


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([RIGHT], True),
        ([WRONG], False),
        ([RIGHT, WRONG, RIGHT], True),
        ([RIGHT, WRONG, WRONG], False),
        ([RIGHT, WRONG], True),  # of as many, the first
        ([WRONG, RIGHT], False),
        ([WRONG, RIGHT, OTHER, RIGHT, WRONG], False),
        ([WRONG, OTHER, RIGHT, RIGHT], True),  # a plurality is enough
        ([NONE, NONE, NONE, RIGHT], True),  # no answer is no vote
        ([NONE, NONE, WRONG, RIGHT], False),
        ([NONE, NONE], False),
        ([(None, True), (None, False)], True),  # unless there is nothing else
    ],
)
def test_the_answer_of_most_counts(votes, expected):
    assert majority_is_right(votes) is expected
    assert majority_at_k(votes, len(votes)) == float(expected)


@pytest.mark.parametrize(("k", "expected"), [(1, 3 / 7), (2, 2 / 3), (3, 1.0), (4, 0.0), (5, 1.0), (7, 1.0)])
def test_majority_at_k_is_over_groups_of_k(k, expected):
    votes = [RIGHT, WRONG, NONE, WRONG, RIGHT, RIGHT, WRONG]
    assert majority_at_k(votes, k) == pytest.approx(expected)
