"""Ragged batches of any content, for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tba_hpc.trajectory import Trajectory, TrajectoryBatch

ARRAYS = ("rows", "prompt_tokens", "response_tokens", "behavior_logprobs", "reference_logprobs")
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32)


def trajectory_lists(max_size: int = 8) -> st.SearchStrategy[list[Trajectory]]:
    """Hypothesis chooses the lengths, from zero up; the rest is noise."""
    lengths = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=max_size)
    return st.builds(noise, lengths, st.integers(0, 2**32))


def noise(lengths: list[tuple[int, int]], seed: int) -> list[Trajectory]:
    """Trajectories of these (prompt, response) lengths with values from the whole range of each type."""
    rng = np.random.default_rng(seed)
    return [
        Trajectory(
            prompt_id=int(rng.integers(-(2**63), 2**63 - 1)),
            prompt_tokens=int32s(rng, prompt),
            response_tokens=int32s(rng, response),
            behavior_logprobs=float32s(rng, response),
            reference_logprobs=float32s(rng, response),
            reward=float(float32s(rng, 1)[0]),
            correct=bool(rng.integers(2)),
            finished=bool(rng.integers(2)),
            temperature=float(float32s(rng, 1)[0]),
            policy_version=int(int32s(rng, 1)[0]),
            reference_version=int(int32s(rng, 1)[0]),
            searcher=int(int32s(rng, 1)[0]),
        )
        for prompt, response in lengths
    ]


def int32s(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(-(2**31), 2**31 - 1, n, dtype=np.int32, endpoint=True)


def float32s(rng: np.random.Generator, n: int) -> np.ndarray:
    """One in three is special."""
    return np.where(rng.random(n) < 1 / 3, rng.choice(SPECIAL, n), rng.normal(size=n).astype(np.float32))


def assert_same_batch(a: TrajectoryBatch, b: TrajectoryBatch) -> None:
    """Bit for bit, so that one NaN is like itself and 0 is not −0."""
    for name in ARRAYS:
        left, right = getattr(a, name), getattr(b, name)
        assert left.dtype == right.dtype, name
        assert left.tobytes() == right.tobytes(), name
