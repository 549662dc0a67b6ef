"""Having files survive a crash of the node."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Has the content of a file on stable storage, or the names in a folder. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str) -> None:
    """Writes a file so that at any time either the old or the new one is there as a whole. Raises `OSError`."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    sync(temporary)
    temporary.replace(path)
