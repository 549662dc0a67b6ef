"""A model and a run small enough for a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tba_hpc.models import fresh_llama
from tba_hpc.tasks.arithmetic import Arithmetic


def save_tiny_model(folder: Path, seed: int) -> Path:
    tokenizer = Arithmetic({}).new_tokenizer()
    init = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        "initializer_range": 0.2,
    }
    fresh_llama(init, tokenizer, seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_settings(model: Path | str, run_dir: Path | str) -> dict[str, Any]:
    """A complete configuration of a run of seconds."""
    return {
        "run_dir": str(run_dir),
        "seed": 3,
        "model": {"path": str(model)},
        "task": {"name": "arithmetic"},
        "rollout": {"queries_per_batch": 4, "samples_per_query": 6, "max_prompt_tokens": 16, "max_response_tokens": 6},
        "buffer": {"most_on_policy": 0.5, "max_per_query": 24, "capacity": 10_000, "start_size": 48},
        "objective": {"beta": {"kind": "constant", "value": 0.5}},
        "trainer": {
            "steps": 6,
            "batch_size": 16,
            "samples_per_query": 4,
            "sync_every": 2,
            "learning_rate": {"kind": "constant", "value": 0.001},
        },
        "distributed": {"timeout_seconds": 60, "bucket_bytes": 10_000},
        "evaluation": {"problems": 8},
        "logging": {"samples_every": 2, "histograms_every": 2, "samples": 2},
    }
