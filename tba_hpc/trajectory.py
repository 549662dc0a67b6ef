"""The data that flows through a run: prompts, trajectories, and batches of them.

A `TrajectoryBatch` is a struct of arrays: one row of scalars a trajectory, and the tokens of all trajectories
one after the other. Nothing is padded until a batch reaches the model, so a batch costs what it holds in RAM, on the
wire and on disk alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROW_DTYPE = np.dtype(
    [
        ("prompt_id", "<i8"),  # identity of the prompt: its index in the task's split
        ("policy_version", "<i4"),  # optimizer step whose weights sampled the response
        ("reference_version", "<i4"),  # which reference policy scored it
        ("searcher", "<i4"),  # index of the searcher, 0 … number of searchers − 1
        ("prompt_length", "<i4"),  # tokens
        ("response_length", "<i4"),  # tokens, the end-of-sequence token included when it was sampled
        ("reward", "<f4"),  # r(y; x) of the task
        ("temperature", "<f4"),  # sampling temperature of the behaviour policy
        ("correct", "u1"),  # 1 if the task counts the response as right
        ("finished", "u1"),  # 1 if the response ended by itself, 0 if it was truncated
    ]
)
"""Scalars of one trajectory, packed without gaps: the layout on the wire and on disk too."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    """`system`, `user` or `assistant`, as chat templates know them."""
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One query x of a task."""

    id: int
    """Identity within the task's split; the same prompt has the same id on every rank and in every run."""
    text: str
    answer: str
    """What the task's grader compares a response with."""
    messages: tuple[Message, ...] = ()
    """A conversation for the tokenizer's chat template, which the policy then reads in place of `text`."""


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """One response y to a prompt x, scored. R is the response's length; it may be zero."""

    prompt_id: int
    prompt_tokens: NDArray[np.int32]
    """`[P]`"""
    response_tokens: NDArray[np.int32]
    """`[R]`, exactly the ids that were sampled, the end-of-sequence token included when it was."""
    behavior_logprobs: NDArray[np.float32]
    """`[R]` log-probability of each token under the distribution it was sampled from."""
    reference_logprobs: NDArray[np.float32]
    """`[R]` log-probability of each token under the reference policy, at the run's temperature."""
    reward: float
    correct: bool
    finished: bool
    temperature: float
    policy_version: int
    reference_version: int
    searcher: int


@dataclass(frozen=True, slots=True, eq=False)
class TrajectoryBatch:
    """N trajectories as flat arrays. P and R are the sums of their prompt and response lengths."""

    rows: NDArray[np.void]
    """`[N]` of `ROW_DTYPE`"""
    prompt_tokens: NDArray[np.int32]
    """`[P]`"""
    response_tokens: NDArray[np.int32]
    """`[R]`"""
    behavior_logprobs: NDArray[np.float32]
    """`[R]`"""
    reference_logprobs: NDArray[np.float32]
    """`[R]`"""

    def __post_init__(self) -> None:
        """Raises `ValueError` where the arrays contradict each other: batches come from the wire and from disk too."""
        if self.rows.dtype != ROW_DTYPE:
            raise ValueError(f"rows have dtype {self.rows.dtype}, not ROW_DTYPE")
        prompt_lengths, response_lengths = self.rows["prompt_length"], self.rows["response_length"]
        if len(self.rows) and min(prompt_lengths.min(), response_lengths.min()) < 0:
            raise ValueError("a trajectory has a negative length")
        n_prompt = int(prompt_lengths.sum(dtype=np.int64))
        n_response = int(response_lengths.sum(dtype=np.int64))
        sizes = [len(self.prompt_tokens)] + [len(a) for a in self._per_response_token()]
        if sizes != [n_prompt] + [n_response] * 3:
            raise ValueError(f"token arrays have {sizes} entries where the rows say {n_prompt} and {n_response}")

    def _per_response_token(self) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
        return self.response_tokens, self.behavior_logprobs, self.reference_logprobs

    @classmethod
    def empty(cls) -> TrajectoryBatch:
        tokens, logprobs = np.empty(0, np.int32), np.empty(0, np.float32)
        return cls(np.empty(0, ROW_DTYPE), tokens, tokens, logprobs, logprobs)

    @classmethod
    def from_trajectories(cls, trajectories: Sequence[Trajectory]) -> TrajectoryBatch:
        if not trajectories:
            return cls.empty()
        rows = np.empty(len(trajectories), ROW_DTYPE)
        for row, t in zip(rows, trajectories, strict=True):
            assert len(t.response_tokens) == len(t.behavior_logprobs) == len(t.reference_logprobs)
            row["prompt_length"], row["response_length"] = len(t.prompt_tokens), len(t.response_tokens)
            for name in SCALAR_FIELDS:
                row[name] = getattr(t, name)
        return cls(
            rows,
            np.concatenate([t.prompt_tokens for t in trajectories]).astype(np.int32, copy=False),
            np.concatenate([t.response_tokens for t in trajectories]).astype(np.int32, copy=False),
            np.concatenate([t.behavior_logprobs for t in trajectories]).astype(np.float32, copy=False),
            np.concatenate([t.reference_logprobs for t in trajectories]).astype(np.float32, copy=False),
        )

    @classmethod
    def concatenate(cls, batches: Sequence[TrajectoryBatch]) -> TrajectoryBatch:
        """Copies, unless only one of the batches has trajectories: that one is the result."""
        batches = [batch for batch in batches if len(batch)]
        if not batches:
            return cls.empty()
        if len(batches) == 1:
            return batches[0]
        return cls(
            np.concatenate([b.rows for b in batches]),
            np.concatenate([b.prompt_tokens for b in batches]),
            np.concatenate([b.response_tokens for b in batches]),
            np.concatenate([b.behavior_logprobs for b in batches]),
            np.concatenate([b.reference_logprobs for b in batches]),
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Trajectory]:
        prompt_offsets, response_offsets = self.prompt_offsets, self.response_offsets
        for i, row in enumerate(self.rows):
            p = slice(prompt_offsets[i], prompt_offsets[i + 1])
            r = slice(response_offsets[i], response_offsets[i + 1])
            yield Trajectory(
                prompt_id=int(row["prompt_id"]),
                prompt_tokens=self.prompt_tokens[p],
                response_tokens=self.response_tokens[r],
                behavior_logprobs=self.behavior_logprobs[r],
                reference_logprobs=self.reference_logprobs[r],
                reward=float(row["reward"]),
                correct=bool(row["correct"]),
                finished=bool(row["finished"]),
                temperature=float(row["temperature"]),
                policy_version=int(row["policy_version"]),
                reference_version=int(row["reference_version"]),
                searcher=int(row["searcher"]),
            )

    @property
    def prompt_offsets(self) -> NDArray[np.int64]:
        """`[N + 1]`: prompt i is `prompt_tokens[offsets[i]:offsets[i + 1]]`."""
        return offsets(self.rows["prompt_length"])

    @property
    def response_offsets(self) -> NDArray[np.int64]:
        """`[N + 1]`"""
        return offsets(self.rows["response_length"])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.rows.nbytes + self.prompt_tokens.nbytes + 3 * self.response_tokens.nbytes

    def select(self, indices: NDArray[np.integer]) -> TrajectoryBatch:
        """The trajectories at `indices [M]`, in that order; an index may repeat. Copies."""
        if len(indices) and is_run(indices):
            return self._copy_of_run(int(indices[0]), int(indices[-1]) + 1)
        prompt = ragged_indices(self.prompt_offsets, indices)
        response = ragged_indices(self.response_offsets, indices)
        return TrajectoryBatch(
            self.rows[indices],
            self.prompt_tokens[prompt],
            self.response_tokens[response],
            self.behavior_logprobs[response],
            self.reference_logprobs[response],
        )

    def _copy_of_run(self, start: int, stop: int) -> TrajectoryBatch:
        """As `select(np.arange(start, stop))`, several times as fast."""
        prompt = slice(*self.prompt_offsets[[start, stop]])
        response = slice(*self.response_offsets[[start, stop]])
        return TrajectoryBatch(
            self.rows[start:stop].copy(),
            self.prompt_tokens[prompt].copy(),
            self.response_tokens[response].copy(),
            self.behavior_logprobs[response].copy(),
            self.reference_logprobs[response].copy(),
        )


SCALAR_FIELDS = tuple(name for name in ROW_DTYPE.names or () if not name.endswith("_length"))
"""The fields of a row that a `Trajectory` has under the same name."""


def offsets(lengths: NDArray[np.int32]) -> NDArray[np.int64]:
    """Start of each of N runs laid end to end, and the end of the last: `[N + 1]`."""
    result = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=result[1:])
    return result


def is_run(indices: NDArray[np.integer]) -> bool:
    """Whether each of the indices is the one before it plus one, and none is negative."""
    first, last = int(indices[0]), int(indices[-1])
    return first >= 0 and last - first == len(indices) - 1 and bool((np.diff(indices) == 1).all())


def ragged_indices(run_offsets: NDArray[np.int64], indices: NDArray[np.integer]) -> NDArray[np.int64]:
    """Flat positions of the elements of the runs at `indices`, run after run, without a Python loop."""
    starts = run_offsets[indices]
    lengths = run_offsets[1:][indices] - starts
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    result: NDArray[np.int64] = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class SampledBatch:
    """What the trainer learns from in one step: B queries with K trajectories each."""

    trajectories: TrajectoryBatch
    group_ids: NDArray[np.int32]
    """`[N]` which query of the batch a trajectory belongs to, 0 … B − 1, in ascending order. A query drawn twice
    makes two groups."""
    recent: NDArray[np.bool_]
    """`[N]` whether the trajectory was drawn from those of the latest sync."""

    def __len__(self) -> int:
        return len(self.trajectories)

    def select(self, indices: NDArray[np.integer]) -> SampledBatch:
        return SampledBatch(self.trajectories.select(indices), self.group_ids[indices], self.recent[indices])
