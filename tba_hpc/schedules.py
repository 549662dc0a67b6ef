"""Values that change over training, as pure functions of the optimizer step (the first step is 0)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from tba_hpc.settings import Integer, PositiveInt, Settings


class Constant(Settings):
    """The same value at every step."""

    kind: Literal["constant"] = "constant"
    value: float = Field(ge=0)

    @property
    def span(self) -> int:
        """Steps after which the value no longer changes."""
        return 0

    @property
    def lowest(self) -> float:
        """Of all steps."""
        return self.value

    def __call__(self, step: int) -> float:
        return self.value


class Linear(Settings):
    """A straight line from `start` to `end` over `steps` steps, then `end`."""

    kind: Literal["linear"]
    start: float = Field(ge=0)
    end: float = Field(ge=0)
    steps: PositiveInt

    @model_validator(mode="after")
    def _not_zero(self) -> Linear:
        if self.start == self.end == 0:
            raise ValueError("start and end are both 0: the value would be 0 throughout")
        return self

    @property
    def span(self) -> int:
        """Steps after which the value no longer changes."""
        return self.steps

    @property
    def lowest(self) -> float:
        """Of all steps."""
        return min(self.start, self.end)

    def __call__(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


class LinearCut(Linear):
    """The line of `Linear`, left for `end` already at step `cut_at` (TL;DR recipe: a slope that would take half the
    run, cut at an eighth of it)."""

    kind: Literal["linear_cut"]  # type: ignore[assignment]
    cut_at: PositiveInt

    @property
    def span(self) -> int:
        return min(self.cut_at, self.steps)

    def __call__(self, step: int) -> float:
        return self.end if step >= self.cut_at else super().__call__(step)


class WarmupStableDecay(Settings):
    """From 0 up to `peak` over `warmup` steps, level for `stable`, down to 0 over `decay`.

    The first step already has `peak / warmup`, and the last of the decay `peak / decay`: no step is spent at zero."""

    kind: Literal["warmup_stable_decay"]
    peak: PositiveFloat
    warmup: Integer = Field(0, ge=0)
    stable: Integer = Field(ge=0)
    decay: Integer = Field(0, ge=0)

    @model_validator(mode="after")
    def _not_empty(self) -> WarmupStableDecay:
        if self.span == 0:
            raise ValueError("warmup, stable and decay are all 0: the learning rate would be 0 throughout")
        return self

    @property
    def span(self) -> int:
        """Steps after which the value no longer changes."""
        return self.warmup + self.stable + self.decay

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        step -= self.warmup + self.stable
        if step < 0:
            return self.peak
        return self.peak * max(self.decay - step, 0) / self.decay if self.decay else 0.0


def _number_is_constant(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"kind": "constant", "value": value} if is_number else value


BetaSchedule = Annotated[
    Constant | Linear | LinearCut, Field(discriminator="kind"), BeforeValidator(_number_is_constant)
]
"""A number stands for the constant."""
LearningRateSchedule = Annotated[
    Constant | Linear | WarmupStableDecay, Field(discriminator="kind"), BeforeValidator(_number_is_constant)
]
