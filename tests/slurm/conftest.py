"""A throw-away Slurm for the tests of this folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch import Batch, wait_until

SCRIPT = Path(__file__).parents[2] / "tools" / "slurm_local.sh"
NEEDED = ("munged", "slurmctld", "slurmd", "srun", "unshare")
SACCT = """#!/bin/sh
# Enough of an accounting for submitit, without a database.
echo "JobID|State|NodeList"
squeue --noheader --states=all --format='%i|%T|%N'
"""


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment in which srun speaks to four idle nodes."""
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a local Slurm needs root and {', '.join(NEEDED)}; missing: {', '.join(missing) or 'root'}")
    folder = tmp_path_factory.mktemp("slurm")
    sacct = folder / "bin" / "sacct"
    sacct.parent.mkdir()
    sacct.write_text(SACCT)
    sacct.chmod(0o755)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{sacct.parent}:{os.environ['PATH']}",
        "SLURM_CONF": str(folder / "slurm.conf"),
        "SLURM_LOCAL_PORT": str(five_free_ports()),
    }
    words = ["bash", str(SCRIPT)]
    start = subprocess.run([*words, "start", folder], env=environment, capture_output=True, text=True, timeout=120)
    assert start.returncode == 0, start.stderr
    try:
        yield environment
        subprocess.run(["scancel", "--user=root"], env=environment, check=True, timeout=60)
        # slurmd does not stop while it has a job to end.
        wait_until(lambda: not Batch(environment).call("squeue", "--noheader"), 30, lambda: "jobs do not end")
    finally:
        subprocess.run([*words, "stop", folder], check=True, timeout=60)


@pytest.fixture(scope="session")
def batch(slurm: dict[str, str]) -> Batch:
    """Batch jobs on those nodes."""
    return Batch(slurm)


def five_free_ports() -> int:
    """The first of five ports in a row that nobody listens on."""
    for first in range(16817, 17817, 5):
        if all(is_free(port) for port in range(first, first + 5)):
            return first
    pytest.fail("no ports for a local Slurm")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
