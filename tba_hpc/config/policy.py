"""Settings of what is trained, on what, and of how it is sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from tba_hpc.config.checks import Share
from tba_hpc.settings import PositiveInt, Settings


def _one_text(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


StopTexts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_one_text)]
"""One text, or several."""


class ModelConfig(Settings):
    path: str
    """Policy to start from: a folder in Hugging Face format, or a hub name."""
    reference: str | None = None
    """Reference policy π_ref; the start of the policy when not given."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    logprob_chunk_tokens: PositiveInt = 1024
    """Logits exist for this many tokens at a time."""

    @property
    def reference_path(self) -> str:
        """Where π_ref is."""
        return self.reference or self.path

    @property
    def paths(self) -> set[str]:
        """Of both policies."""
        return {self.path, self.reference_path}

    @model_validator(mode="after")
    def _attention_fits_dtype(self) -> ModelConfig:
        if self.attention == "flash_attention_2" and self.dtype == "float32":
            raise ValueError("attention = flash_attention_2 does not work in float32: set dtype to bfloat16")
        return self


class TaskConfig(Settings):
    name: str
    """One of the package's, that of an entry point in the group `tba_hpc.tasks`, or a class in the file `path`."""
    path: Path | None = None
    """A Python file with the task."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Settings of the task itself; each task checks its own."""


class ExplorationConfig(Settings):
    """Wider sampling on a share of the queries. TB needs no correction for it: any sampler of full support will do,
    so top-p below 1 trades coverage for quality."""

    fraction: Share
    """Share of generation batches sampled with random settings."""
    temperature: tuple[PositiveFloat, PositiveFloat]
    """Drawn uniformly between these."""
    top_p: tuple[float, float] = (1.0, 1.0)
    """Drawn uniformly between these."""

    @model_validator(mode="after")
    def _ordered(self) -> ExplorationConfig:
        for name in ("temperature", "top_p"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} = [{low}, {high}] is not in ascending order")
        if not 0 < self.top_p[0] <= self.top_p[1] <= 1:
            raise ValueError(f"top_p = {list(self.top_p)} is not within (0, 1]")
        return self


class RolloutConfig(Settings):
    engine: Literal["hf"] = "hf"
    queries_per_batch: PositiveInt
    """Queries a searcher works on at a time."""
    samples_per_query: PositiveInt
    """S: responses sampled for each query."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature, and the one that defines the policy: log-probabilities divide logits by it."""
    top_p: float = Field(1.0, gt=0, le=1)
    max_prompt_tokens: PositiveInt
    """A longer prompt is refused at start-up."""
    max_response_tokens: PositiveInt
    """A response that has not ended by then is truncated."""
    stop: StopTexts = ()
    """Texts that end a response as soon as one is complete, beside the end tokens of the model. The trajectory keeps
    them; what is graded ends before."""
    exploration: ExplorationConfig | None = None
    emulate_seconds_per_token: PositiveFloat | None = None
    """For measurements: generation never takes less than this for each token of a batch's longest response, as on a
    device that is so fast. Searchers sleep for the rest, so that few processors can stand for many devices."""


class ReferenceConfig(Settings):
    """Whether the reference policy moves, as in TBA′: with a constant β, the policy may then leave its start behind."""

    reset_every: PositiveInt | None = None
    """ρ: after every so many optimizer steps the current policy becomes the reference; never when not given. If it
    does, each trainer holds a copy of it, too."""
    stale: Literal["recompute", "drop"] = "recompute"
    """What happens to trajectories that an earlier reference has scored: the trainers score them anew when they are
    drawn, or they are left out."""

    def resets_after(self, steps: int) -> bool:
        """Whether the policy after so many optimizer steps becomes the reference."""
        return self.reset_every is not None and steps % self.reset_every == 0
