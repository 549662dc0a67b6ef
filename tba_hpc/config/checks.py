"""What several parts of the configuration are made of and checked by."""

from __future__ import annotations

from typing import Annotated

from pydantic import ByteSize, Field

from tba_hpc.schedules import LearningRateSchedule
from tba_hpc.settings import S

Share = Annotated[float, Field(ge=0, le=1)]
PositiveBytes = Annotated[ByteSize, Field(gt=0)]
GradNorm = Annotated[float, Field(gt=0, allow_inf_nan=True)]
"""Longest gradient; `.inf` for no clipping."""
Problem = tuple[bool, str]
"""Whether two settings do not go together, and what to say then."""


def learning_rate_problem(key: str, schedule: LearningRateSchedule, steps_key: str, steps: int) -> Problem:
    """A schedule that is 0, or comes down to 0 before its end."""
    too_short = f"{key} is down to 0 after {schedule.span} steps: too few for {steps_key} = {steps}"
    return schedule(steps - 1) == 0, too_short if schedule.span else f"{key} is 0 throughout"


def checked(settings: S, problems: list[Problem]) -> S:
    """The settings. Raises `ValueError` with all that is wrong with them."""
    found = [message for wrong, message in problems if wrong]
    if found:
        raise ValueError("\n  ".join(found))
    return settings
