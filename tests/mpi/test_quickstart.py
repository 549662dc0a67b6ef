"""The quickstart's own recipe, cut short: TBA teaches the policy something."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_held_out_accuracy_rises(start, tmp_path):
    run_dir = tmp_path / "run"
    overrides = ["trainer.steps=120", f"run_dir={run_dir}"]
    train = [sys.executable, "-m", "tba_hpc", "train", "configs/quickstart.yaml", "--ranks", "4", *overrides]
    finished = start(train, cwd=ROOT).result(280)
    assert finished.code == 0, finished.output
    report = json.loads((run_dir / "report.json").read_text())
    assert (report["trainers"], report["searchers"]) == (1, 3)
    assert report["accuracy_before"] == pytest.approx(0.59, abs=0.01)
    # 1,002 problems: chance alone moves an accuracy of 60% by 3 points in one of 20 cases.
    assert report["accuracy_after"] > report["accuracy_before"] + 0.06, finished.output
