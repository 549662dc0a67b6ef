"""The whole way with a real pretrained model, as tools/real_model_check.py goes it."""

import os
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "tools" / "real_model_check.py"
SECONDS = 1500


@pytest.mark.real_model
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
def test_a_pretrained_model_goes_through_warm_up_and_tba(start, data_dir, tmp_path):
    if "TBA_SMOLLM2" not in os.environ:
        pytest.skip("TBA_SMOLLM2 does not name a folder with the model that tools/make_smollm2.py makes")
    words = ["--data", data_dir, "--model", os.environ["TBA_SMOLLM2"], "--folder", tmp_path]
    finished = start([sys.executable, str(CHECK), *map(str, words)]).result(SECONDS)
    assert finished.code == 0, finished.output
    values = finished.values
    assert values["passed"]
    assert max(values["logprob_difference_by_version"].values()) < 1e-3
    assert max(map(int, values["logprob_difference_by_version"])) > 0
    assert values["values_not_finite"] == []
