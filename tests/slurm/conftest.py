"""A throw-away Slurm for the tests of this folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "slurm_local.sh"
NEEDED = ("munged", "slurmctld", "slurmd", "srun", "unshare")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment in which srun speaks to four idle nodes."""
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a local Slurm needs root and {', '.join(NEEDED)}; missing: {', '.join(missing) or 'root'}")
    folder = tmp_path_factory.mktemp("slurm")
    start = subprocess.run(["bash", SCRIPT, "start", folder], capture_output=True, text=True, timeout=120)
    assert start.returncode == 0, start.stderr
    try:
        yield {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "OMP_NUM_THREADS": "1"}
    finally:
        subprocess.run(["bash", SCRIPT, "stop", folder], check=True, timeout=60)
