"""The shell files, without a Slurm: a stand-in for Python shows what it would be given."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BATCH = sorted((ROOT / "slurm").glob("*.sbatch"))
SCRIPTS = [
    *BATCH,
    *sorted((ROOT / "slurm").glob("*.sh")),
    *sorted((ROOT / "slurm" / "sites").glob("*.env")),
    *sorted((ROOT / "tools").glob("*.sh")),
    *sorted((ROOT / "tests" / "golden").glob("*.sbatch")),
    ROOT / ".ci" / "run",
]
SHELLCHECK = Path(sys.executable).parent / "shellcheck"


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **options)


def test_there_are_scripts_to_check():
    assert len(BATCH) >= 5
    assert len(SCRIPTS) >= 15


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(script):
    assert run("bash", "-n", script).stderr == ""
    checked = run(SHELLCHECK, "--external-sources", script, cwd=ROOT)
    assert checked.stdout + checked.stderr == ""


@pytest.fixture
def batch(tmp_path):
    """Runs a batch script as Slurm would; returns the process and the words that Python was given."""
    words = tmp_path / "words"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nfor word in "$@"; do echo "$word"; done > {words}\necho "$TBA_HPC_MPI"\n')
    python.chmod(0o755)

    def start(script, *arguments, **variables):
        environment = {
            "PATH": "/usr/bin:/bin",
            "SLURM_SUBMIT_DIR": str(ROOT),
            "SLURM_JOB_ID": "17",
            "SLURM_JOB_NAME": "name",
            "SLURM_NTASKS_HET_GROUP_0": "2",
            "TBA_HPC_PYTHON": str(python),
        }
        process = run("bash", ROOT / "slurm" / script, *arguments, env=environment | variables, cwd=tmp_path)
        return process, words.read_text().splitlines() if words.exists() else []

    return start


TRAIN = ["-m", "tba_hpc", "train", "--srun", "--resume", "auto", "configs/quickstart.yaml", "run_dir=runs/name-17"]


def test_overrides_arrive_word_for_word(batch):
    awkward = 'run_dir=a run\'s $HOME "quoted" *'
    process, words = batch("tba_quickstart.sbatch", awkward, "seed=1")
    assert words == [*TRAIN, awkward, "seed=1"]
    assert (process.stdout, process.stderr, process.returncode) == ("pmi2\n", "", 0)


@pytest.mark.parametrize(
    ("script", "recipe"),
    [
        ("tba_quickstart.sbatch", "quickstart"),
        ("tba_gsm8k.sbatch", "gsm8k_rho1b_700"),
        ("tba_math_tba_prime.sbatch", "math_qwen25_7b_tba_prime"),
        ("tba_countdown.sbatch", "countdown_qwen3_4b"),
    ],
)
def test_a_script_trains_its_recipe(batch, script, recipe):
    _, words = batch(script, "seed=1")
    assert words == [*TRAIN[:-2], f"configs/{recipe}.yaml", TRAIN[-1], "seed=1"]


def test_the_warm_up_is_one_task_of_its_own_command(batch):
    _, words = batch("tba_gsm8k_sft.sbatch", "seed=1")
    sft = ["-m", "tba_hpc", "sft", "--srun", "--resume", "auto"]
    assert words == [*sft, "configs/gsm8k_rho1b_sft.yaml", "run_dir=runs/name-17", "seed=1"]
    script = (ROOT / "slurm" / "tba_gsm8k_sft.sbatch").read_text()
    assert all(f"#SBATCH --{one}=1\n" in script for one in ("nodes", "ntasks-per-node", "gpus-per-node"))


def test_the_trainers_of_a_heterogeneous_job_are_the_tasks_of_its_first_component(batch):
    _, words = batch("tba_quickstart_hetjob.sbatch", "seed=1")
    assert words == [*TRAIN, "distributed.trainers=2", "seed=1"]


@pytest.mark.parametrize("script", BATCH, ids=lambda path: path.name)
def test_a_script_submitted_from_elsewhere_says_so(batch, script, tmp_path):
    process, words = batch(script.name, SLURM_SUBMIT_DIR=str(tmp_path))
    assert (process.returncode, words) == (2, [])
    assert f"submit this file from the root of the repository: sbatch slurm/{script.name}" in process.stderr


def test_a_script_that_is_not_submitted_at_all_says_so(batch):
    process, words = batch("tba_quickstart.sbatch", SLURM_SUBMIT_DIR="")
    assert process.returncode != 0
    assert "start this file with sbatch" in process.stderr
    assert words == []


def test_another_site_is_read_in_place_of_the_default(batch, tmp_path):
    (tmp_path / "my site.env").write_text("export TBA_HPC_MPI=pmix TBA_HPC_MODULES='a b'\nmodule() { echo \"$@\"; }\n")
    process, words = batch("tba_quickstart.sbatch", TBA_HPC_SITE=str(tmp_path / "my site.env"))
    assert process.stdout == "load a b\npmix\n"
    assert words == TRAIN


@pytest.mark.parametrize("variables", [{"TBA_HPC_SITE": "/no/such/site.env"}, {"TBA_HPC_MODULES": "nowhere"}])
def test_a_site_that_cannot_be_set_up_ends_the_job(batch, variables):
    process, words = batch("tba_quickstart.sbatch", **variables)
    assert (process.returncode, words) == (2, [])
    assert process.stderr != ""


@pytest.mark.parametrize("script", BATCH, ids=lambda path: path.name)
def test_batch_scripts_ask_for_what_going_on_needs(script):
    directives = [line for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
    for needed in ("--requeue", "--open-mode=append", "--signal=B:USR1@120"):
        assert f"#SBATCH {needed}" in directives
