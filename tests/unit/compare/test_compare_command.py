import io
import json
import sys

import pytest
import yaml
from comparison_cases import write_run
from PIL import Image
from rich.console import Console
from tiny import tiny_settings

from tba_hpc.compare.command import run_compare
from tba_hpc.compare.plan import plan, variants
from tba_hpc.settings import ConfigError

WRITES_A_REPORT = """
import json, pathlib, re, sys
words = " ".join(sys.argv[1:])
assert "--resume auto" in words and "-n 4" in words, words
run_dir = pathlib.Path(json.loads(re.search(r'run_dir=("[^"]*")', words)[1]))
print("training in", run_dir)
sys.exit(CODE)
"""


@pytest.fixture
def runs(tmp_path):
    settings = tiny_settings("model", "run")
    settings["evaluation"]["every_steps"] = 2
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    compared = variants(["tb_vargrad"], ["asynchronous", "synchronous"])
    return plan(tmp_path / "run.yaml", compared, [0, 1], tmp_path / "runs", 4, [])


def launcher(tmp_path, code):
    """In place of mpiexec: ends with `code` and trains nothing."""
    file = tmp_path / "launcher.py"
    file.write_text(WRITES_A_REPORT.replace("CODE", str(code)))
    return f"{sys.executable} {file}"


def compare(tmp_path, runs, code=0, target=None):
    output = io.StringIO()
    console = Console(file=output, width=200)
    result = run_compare(tmp_path / "run.yaml", runs, tmp_path / "runs", 4, launcher(tmp_path, code), target, console)
    return result, output.getvalue()


def test_what_is_done_is_reported_and_not_done_again(tmp_path, runs):
    for number, run in enumerate(runs):
        write_run(run, {0: 0.2, 2: 0.4, 4: 0.5 + number / 10}, 1.0)
    code, text = compare(tmp_path, runs, code=1)
    assert code == 0
    assert "4/4 tb_vargrad:synchronous seed 1: 20.0% → 80.0% in 4 s" in text
    assert "seconds to 60.0%" in text
    values = json.loads((tmp_path / "runs" / "comparison.json").read_text())
    assert set(values["variants"]) == {"tb_vargrad:asynchronous", "tb_vargrad:synchronous"}
    with Image.open(tmp_path / "runs" / "comparison.png") as picture:
        assert picture.width > 1000


def test_a_run_that_fails_is_named_with_its_output(tmp_path, runs):
    with pytest.raises(RuntimeError, match=r"seed=0 failed with exit code 3; its last words are in .*seed=0\.output"):
        compare(tmp_path, runs, code=3)
    assert "training in" in (tmp_path / "runs" / "tb_vargrad.asynchronous" / "seed=0.output.txt").read_text()


def test_a_run_that_has_to_leave_ends_the_comparison_with_its_code(tmp_path, runs):
    assert compare(tmp_path, runs, code=75)[0] == 75


def test_a_run_with_other_settings_is_not_taken_for_one_of_these(tmp_path, runs):
    write_run(runs[2], {0: 0.2, 4: 0.5}, 1.0)
    other = plan(
        tmp_path / "run.yaml", [runs[2].variant], [runs[2].seed], tmp_path / "runs", 4, ["trainer.batch_size=8"]
    )
    with pytest.raises(ConfigError, match="holds a run with other settings"):
        compare(tmp_path, other)
