"""Which queries and responses are drawn, and how often. Seeds are fixed; bounds are five standard errors and more."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.replay.index import ReplayIndex
from tba_hpc.replay.sampler import (
    Mixture,
    Recent,
    RewardSoftmax,
    Uniform,
    draw_queries,
    draw_softmax,
    draw_uniform,
)


def make_index(*arrivals: list[tuple[int, float]]) -> ReplayIndex:
    """One arrival after the other of (prompt id, reward); sequence numbers count up from 0."""
    index = ReplayIndex(max_per_query=10**6, capacity=10**6)
    n = 0
    for arrival, pairs in enumerate(arrivals):
        prompt_ids, rewards = (np.array(column) for column in zip(*pairs, strict=True))
        index.add(prompt_ids, np.arange(n, n + len(pairs), dtype=np.uint64), rewards, arrival)
        n += len(pairs)
    return index


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(1, 40), st.sets(st.integers(0, 30)), st.integers(0, 99))
def test_queries_repeat_only_when_there_are_no_others(candidates, n, taken, seed):
    before = set(taken)
    drawn = draw_queries(sorted(candidates), n, taken, np.random.default_rng(seed))
    assert len(drawn) == n
    assert set(drawn) <= candidates
    assert len(set(drawn) - before) == min(n, len(candidates - before))
    first = drawn[: len(candidates - before)]
    assert len(set(first)) == len(first)
    assert taken == before | set(drawn)


def test_queries_are_uniform_over_those_not_taken():
    rng = np.random.default_rng(0)
    counts = np.zeros(8)
    for _ in range(4000):
        for query in draw_queries(range(8), 2, {3, 5}, rng):
            counts[query] += 1
    assert counts[3] == counts[5] == 0
    np.testing.assert_allclose(counts[[0, 1, 2, 4, 6, 7]], 8000 / 6, rtol=0.12)


@given(st.integers(1, 12), st.integers(1, 20), st.integers(0, 99), st.booleans())
def test_responses_repeat_only_when_there_are_no_others(n, k, seed, by_reward):
    rng = np.random.default_rng(seed)
    picked = draw_softmax(np.linspace(-3, 3, n), k, rng) if by_reward else draw_uniform(np.zeros(n, "V20"), k, rng)
    assert len(picked) == k
    assert set(picked.tolist()) <= set(range(n))
    assert len(set(picked.tolist())) == min(n, k)


def test_softmax_without_replacement_draws_one_after_the_other():
    """How often a pair is drawn, against p_a · p_b / (1 − p_a) over both orders."""
    logits = np.array([0.0, 1.0, 2.0, -np.inf])
    p = np.exp(logits) / np.exp(logits).sum()
    expected = np.zeros((4, 4))
    for a, b in permutations(range(4), 2):
        expected[min(a, b), max(a, b)] += p[a] * p[b] / (1 - p[a])
    rng, counts, draws = np.random.default_rng(0), np.zeros((4, 4)), 20_000
    for _ in range(draws):
        a, b = sorted(draw_softmax(logits, 2, rng).tolist())
        counts[a, b] += 1
    np.testing.assert_allclose(counts / draws, expected, atol=0.02)


def test_softmax_draws_beyond_all_are_by_softmax_too():
    rng = np.random.default_rng(0)
    picked = draw_softmax(np.log([1.0, 3.0]), 10_002, rng)
    assert picked[:2].tolist() == [0, 1]
    assert abs(picked[2:].mean() - 0.75) < 0.03


def test_reward_softmax_divides_by_the_temperature():
    index = make_index([(0, 0.0), (0, 1.0)])
    rng = np.random.default_rng(0)
    shares = []
    for temperature in (0.5, 2.0):
        groups = [RewardSoftmax(temperature).draw(index, 1, 1, set(), rng)[0] for _ in range(4000)]
        shares.append(np.mean([group.sequences[0] for group in groups]))
    np.testing.assert_allclose(shares, [1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-0.5))], atol=0.04)


def test_the_mixture_draws_recent_groups_with_its_share():
    old = [(query, 0.0) for query in range(40) for _ in range(3)]
    new = [(query, 0.0) for query in range(30, 60) for _ in range(3)]
    mixture = Mixture([(0.3, Recent()), (0.7, Uniform())])
    index, rng, recent = make_index(old, new), np.random.default_rng(0), []
    for _ in range(1000):
        groups = mixture.draw(index, 7, 2, set(), rng)
        assert all(min(group.sequences) >= len(old) for group in groups if group.recent)
        recent.append([group.recent for group in groups])
    assert abs(np.mean(recent) - 0.3) < 0.03
    # Not sorted by sampler: every place of the batch has the same share.
    np.testing.assert_allclose(np.mean(recent, axis=0), 0.3, atol=0.08)


def test_uniform_draws_recent_and_old_alike():
    index, rng = make_index([(0, 0.0), (1, 0.0)], [(2, 0.0), (0, 0.0)]), np.random.default_rng(0)
    drawn = [int(Uniform().draw(index, 1, 1, set(), rng)[0].sequences[0]) for _ in range(6000)]
    np.testing.assert_allclose(np.bincount(drawn) / 6000, [1 / 6, 1 / 3, 1 / 3, 1 / 6], atol=0.04)


def test_a_share_of_zero_or_one_is_exact():
    index = make_index([(query, 0.0) for query in range(20)], [(query, 0.0) for query in range(5)])
    for share in (0.0, 1.0):
        groups = Mixture([(share, Recent()), (1 - share, Uniform())]).draw(
            index, 50, 2, set(), np.random.default_rng(0)
        )
        assert {group.recent for group in groups} == {share == 1.0}
