"""Ranks that are killed, by the script that does it more often."""

import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "crash_test.py"


@pytest.mark.slow
def test_a_run_survives_the_death_of_its_ranks(start):
    done = start([sys.executable, str(SCRIPT), "--rounds", "2", "--seed", "1"]).result(280)
    assert done.code == 0, done.output
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["rounds"] == 2
    assert counts["trajectories_confirmed"] > 0
    assert (counts["checkpoints_lost"], counts["trajectories_lost"], counts["steps_missing_or_doubled"]) == (0, 0, 0)
