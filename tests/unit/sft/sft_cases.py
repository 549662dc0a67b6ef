"""Fine-tuning small enough for a test."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console
from written import metrics

from tba_hpc.config import SftConfig
from tba_hpc.sft.run import run_sft

INIT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "max_position_embeddings": 16,
}


def settings(run_dir: Path, evaluation: dict[str, Any] | None = None, **training: Any) -> dict[str, Any]:
    return {
        "run_dir": str(run_dir),
        "init": INIT,
        "task": {"name": "arithmetic", "options": {"max_operand": 4, "test_fraction": 0.2}},
        "training": {
            "max_steps": 6,
            "batch_size": 8,
            "learning_rate": {"kind": "warmup_stable_decay", "peak": 0.01, "warmup": 2, "stable": 1000},
            "evaluate_every": 4,
            **training,
        },
        "max_response_tokens": 3,
        "evaluation": {"problems": 100, "batch_size": 8, **(evaluation or {})},
    }


def config(run_dir: Path, evaluation: dict[str, Any] | None = None, **training: Any) -> SftConfig:
    return SftConfig.model_validate(settings(run_dir, evaluation, **training))


class Asked:
    """In place of an `Interruption`: the signal is there from the n-th look on."""

    def __init__(self, at_look: int | None = None) -> None:
        self.watching_since = time.time()
        self.looks = 0
        self._at_look = at_look

    @property
    def signal(self) -> SimpleNamespace | None:
        self.looks += 1
        asked = self._at_look is not None and self.looks >= self._at_look
        return SimpleNamespace(name="SIGUSR1") if asked else None


def run(
    config: SftConfig, resume: str | None = None, overwrite: bool = False, interruption: Asked | None = None
) -> tuple[int, str]:
    """Exit code and output."""
    output = io.StringIO()
    console = Console(file=output, width=200)
    with _logging_as_it_was():
        code = run_sft(config, interruption or Asked(), console, resume, overwrite)  # type: ignore[arg-type]
    return code, output.getvalue()


def run_to_end(config: SftConfig) -> list[dict[str, Any]]:
    """The metrics of every step."""
    code, output = run(config)
    assert code == 0, output
    return metrics(config.run_dir)


@contextmanager
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level)
