"""Settings of the objectives. `name` says which one; each has only what means something to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeFloat, PositiveFloat, model_validator

from tba_hpc.schedules import BetaSchedule, Constant
from tba_hpc.settings import Settings


def _above_zero(beta: BetaSchedule) -> BetaSchedule:
    if beta.lowest == 0:
        raise ValueError("β has to stay above 0, as the posterior π_ref · exp(r/β) divides by it")
    return beta


PositiveBeta = Annotated[BetaSchedule, AfterValidator(_above_zero)]
ClipRange = tuple[
    Annotated[float, Field(gt=0, le=1)],
    Annotated[float, Field(gt=0, allow_inf_nan=True)],
]
"""ε_low and ε_high of importance ratios within [1 − ε_low, 1 + ε_high]."""


def _both(value: Any) -> Any:
    return (value, value) if isinstance(value, int | float) else value


Clip = Annotated[ClipRange, BeforeValidator(_both)]
"""As `[0.2, 0.28]`, or one number for both; `[1.0, .inf]` for no clipping."""


class TBVarGradConfig(Settings):
    name: Literal["tb_vargrad"] = "tb_vargrad"
    beta: PositiveBeta
    """β of the target posterior π_ref · exp(r/β)."""
    importance_ratio: tuple[NonNegativeFloat, PositiveFloat] | None = None
    """Weigh the gradient of each token with π_θ / π_behavior, clamped to between these; no weights when not given."""
    log_ratio_limit: PositiveFloat | None = None
    """Clamp each token's log π_θ − log π_ref to ± this; unlimited when not given."""

    @model_validator(mode="after")
    def _ratios_ordered(self) -> TBVarGradConfig:
        if self.importance_ratio and self.importance_ratio[0] > self.importance_ratio[1]:
            raise ValueError(f"importance_ratio = {list(self.importance_ratio)} is not in ascending order")
        return self


class ReinforceConfig(Settings):
    name: Literal["reinforce"] = "reinforce"
    beta: BetaSchedule
    """β of E[r] − β KL(π‖π_ref)."""


class RLOOConfig(Settings):
    name: Literal["rloo"] = "rloo"
    beta: BetaSchedule
    """β of E[r] − β KL(π‖π_ref)."""


class ProximalRLOOConfig(Settings):
    name: Literal["proximal_rloo"] = "proximal_rloo"
    beta: BetaSchedule
    """β of E[r] − β KL(π‖π_ref)."""
    clip: Clip = (0.2, 0.2)
    """Of the importance ratio of a whole response."""


class GRPOConfig(Settings):
    name: Literal["grpo"] = "grpo"
    beta: BetaSchedule
    """Coefficient of the KL term in the loss."""
    clip: Clip = (0.2, 0.2)
    """Of the importance ratio of a token."""


class DrGRPOConfig(Settings):
    name: Literal["dr_grpo"] = "dr_grpo"
    beta: BetaSchedule
    """Coefficient of the KL term in the loss."""
    clip: Clip = (0.2, 0.2)
    """Of the importance ratio of a token."""


class OnlineDPOConfig(Settings):
    name: Literal["online_dpo"] = "online_dpo"
    beta: PositiveBeta
    """Factor of the difference of two log-ratios: the larger, the nearer the policy stays to the reference."""


class KimiConfig(Settings):
    name: Literal["kimi"] = "kimi"
    beta: BetaSchedule
    """τ of E[r] − τ KL(π‖π_ref)."""


class SFTObjectiveConfig(Settings):
    name: Literal["sft"] = "sft"
    beta: BetaSchedule = Constant(value=0.0)
    """Without effect, as the loss knows no reference; here so that the settings of a run for another objective do."""
    min_reward: float | None = None
    """Learn only from trajectories with at least this reward; from all when not given."""


def _with_name(values: Any) -> Any:
    """Trajectory Balance is what is meant where no name is given."""
    return {"name": "tb_vargrad", **values} if isinstance(values, Mapping) else values


ObjectiveConfig = Annotated[
    TBVarGradConfig
    | ReinforceConfig
    | RLOOConfig
    | ProximalRLOOConfig
    | GRPOConfig
    | DrGRPOConfig
    | OnlineDPOConfig
    | KimiConfig
    | SFTObjectiveConfig,
    Field(discriminator="name"),
    BeforeValidator(_with_name),
]
