"""What a run has written, read while it runs or afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    """One a step, in the order in which they were written; a line that is being written does not count."""
    path = run_dir / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def steps_of(run_dir: Path) -> list[int]:
    return [line["step"] for line in metrics(run_dir)]


def weights(run_dir: Path) -> dict[str, Tensor]:
    """Of the trained policy."""
    return load_file(run_dir / "final" / "model.safetensors")
