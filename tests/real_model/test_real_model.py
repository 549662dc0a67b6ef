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
def test_a_pretrained_model_goes_through_warm_up_and_tba(start, data_dir):
    if "TBA_SMOLLM2" not in os.environ:
        pytest.skip("TBA_SMOLLM2 does not name a folder with the model that tools/make_smollm2.py makes")
    words = ["--data", str(data_dir), "--model", os.environ["TBA_SMOLLM2"]]
    finished = start([sys.executable, str(CHECK), *words]).result(SECONDS)
    assert finished.code == 0, finished.output
    values = finished.values
    assert values["passed"]
    assert max(values["last_version_by_searcher"]) > 0
    assert max(values["logprob_difference_by_version"].values()) < 2e-4
    assert min(values["with_the_weights_of_the_start"].values()) > 2e-3
