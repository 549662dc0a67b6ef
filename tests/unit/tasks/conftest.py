"""Files of rows, and a cache of their own for the data sets that tests make of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def data_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `datasets` keeps what it has read."""
    import datasets

    cache = tmp_path / "cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return cache


@pytest.fixture
def jsonl(tmp_path: Path) -> Callable[..., str]:
    """Writes rows to a file of JSON lines."""

    def write(*rows: Mapping[str, Any], name: str = "rows.jsonl") -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write
