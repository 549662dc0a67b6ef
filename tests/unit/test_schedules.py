"""Schedules at and around the steps where they change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tba_hpc.schedules import BetaSchedule, Constant, LearningRateSchedule, Linear, LinearCut, WarmupStableDecay


@given(st.integers(0, 10**6))
def test_constant(step: int) -> None:
    assert Constant(value=0.05)(step) == 0.05


@pytest.mark.parametrize(("step", "value"), [(0, 0.012), (250, 0.008), (500, 0.004), (501, 0.004), (10**6, 0.004)])
def test_linear(step: int, value: float) -> None:
    assert Linear(kind="linear", start=0.012, end=0.004, steps=500)(step) == pytest.approx(value, abs=1e-12)


def test_linear_of_one_step_starts_at_the_start() -> None:
    schedule = Linear(kind="linear", start=1.0, end=0.0, steps=1)
    assert [schedule(step) for step in range(3)] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("step", "value"), [(0, 1.0), (16, 1 - 0.95 / 8), (31, 1 - 0.95 * 31 / 128), (32, 0.05), (64, 0.05), (200, 0.05)]
)
def test_linear_cut_leaves_the_line_for_the_end(step: int, value: float) -> None:
    schedule = LinearCut(kind="linear_cut", start=1.0, end=0.05, steps=128, cut_at=32)
    assert schedule(step) == pytest.approx(value)


@pytest.mark.parametrize(
    ("step", "value"),
    [(0, 0.02), (48, 0.98), (49, 1.0), (50, 1.0), (499, 1.0), (500, 1.0), (501, 0.998), (999, 0.002), (1000, 0.0)],
)
def test_warmup_stable_decay(step: int, value: float) -> None:
    schedule = WarmupStableDecay(kind="warmup_stable_decay", peak=1.0, warmup=50, stable=450, decay=500)
    assert schedule(step) == pytest.approx(value)


def test_warmup_stable_decay_without_warmup_or_decay() -> None:
    schedule = WarmupStableDecay(kind="warmup_stable_decay", peak=2.0, stable=3)
    assert [schedule(step) for step in range(5)] == [2.0, 2.0, 2.0, 0.0, 0.0]


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.integers(0, 80))
def test_warmup_stable_decay_spends_no_step_of_its_span_at_zero(w: int, s: int, d: int, step: int) -> None:
    if w + s + d == 0:
        with pytest.raises(ValidationError, match="0 throughout"):
            WarmupStableDecay(kind="warmup_stable_decay", peak=1.0, warmup=w, stable=s, decay=d)
        return
    value = WarmupStableDecay(kind="warmup_stable_decay", peak=1.0, warmup=w, stable=s, decay=d)(step)
    assert 0 <= value <= 1
    assert (value > 0) == (step < w + s + d)


def test_kind_picks_the_schedule() -> None:
    line = {"start": 1, "end": 0.1, "steps": 8}
    beta, rate = TypeAdapter(BetaSchedule), TypeAdapter(LearningRateSchedule)
    assert isinstance(beta.validate_python({"kind": "linear_cut", "cut_at": 2, **line}), LinearCut)
    assert type(rate.validate_python({"kind": "linear", **line})) is Linear
    with pytest.raises(ValidationError):
        rate.validate_python({"kind": "linear_cut", "cut_at": 2, **line})
