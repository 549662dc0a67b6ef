"""Submission with a Slurm that only writes down what it is given; tests/slurm has the real one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tiny import tiny_settings

from tba_hpc.launch import submit, submit_sweep
from tba_hpc.launch.job import TrainingJob
from tba_hpc.launch.submission import batch_script, describe
from tba_hpc.settings import ConfigError

GOLDEN = Path(__file__).parents[2] / "golden"
JOB = {"nodes": 2, "ranks_per_node": 2, "minutes": 30}
SBATCH = """#!/bin/sh
env > "$CALLS.env"
cp "$1" "$CALLS.script"
echo "Submitted batch job 17"
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(tiny_settings("/no/such/model", tmp_path / "run")))
    return path


@pytest.fixture(autouse=True)
def login_node(tmp_path, monkeypatch):
    """A shell outside any job, with a Slurm on PATH."""
    for name in list(os.environ):
        if re.match(r"SLURM_|SBATCH_|PMI|OMPI_|TBA_HPC_", name):
            monkeypatch.delenv(name)
    for name, program in (("srun", "#!/bin/sh\nexit 1\n"), ("sbatch", SBATCH)):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(program)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "sbatch"))
    monkeypatch.chdir(tmp_path)


def golden(name, text, folder):
    """Compares with a file, in which this machine's paths have names. REGENERATE_GOLDEN=1 writes the file."""
    normal = text.replace(sys.executable, "/PYTHON").replace(str(folder), "/FOLDER")
    if os.environ.get("REGENERATE_GOLDEN"):
        (GOLDEN / name).write_text(normal)
    assert normal == (GOLDEN / name).read_text()


def test_the_batch_script_of_a_run(config, tmp_path):
    options = {"gpus_per_node": 4, "cpus_per_task": 8, "partition": "gpu", "account": "us", "name": "my_run"}
    more = {"sbatch": {"qos": "long", "exclusive": True}, "setup": ("module load 'my cuda'",)}
    golden("run.sbatch", batch_script(config, **JOB, **options, **more), tmp_path)


def test_the_batch_script_of_a_sweep(config, tmp_path):
    text = batch_script(config, {"seed": [0, 1, 2], "trainer.steps": [5, 6]}, **JOB)
    golden("sweep.sbatch", text, tmp_path)


def test_what_is_submitted_is_that_script(config, tmp_path):
    submit(config, **JOB)
    assert (tmp_path / "sbatch.script").read_text() == batch_script(config, **JOB)


def test_the_job_knows_its_run(config, tmp_path):
    job = submit(Path("run.yaml"), overrides={"trainer.steps": 5, "run_dir": "here"}, **JOB, srun_args=("-l",))
    run = job.submission().function
    assert run == TrainingJob(
        config=str(config),
        overrides=("trainer.steps=5", "run_dir=here"),
        run_dir=str(tmp_path / "here"),
        cluster="slurm",
        ranks=4,
        minutes=30,
        mpi="pmi2",
        srun_args=("-l",),
    )
    assert run.checkpoint().function == run
    assert describe(job) == f"job 17: run_dir {tmp_path}/here, log {tmp_path}/runs/submitit/17_0_log.out"


def test_the_job_has_a_single_result_whatever_its_tasks(config):
    assert submit(config, **JOB).num_tasks == 1


def test_the_choices_of_the_site_are_those_at_submission(config, monkeypatch):
    monkeypatch.setenv("TBA_HPC_MPI", "pmix")
    monkeypatch.setenv("TBA_HPC_SRUN_ARGS", "--gpu-bind=none -l")
    run = submit(config, **JOB).submission().function
    assert (run.mpi, run.srun_args) == ("pmix", ("--gpu-bind=none", "-l"))
    assert submit(config, mpi="pmi2", srun_args=(), **JOB).submission().function.mpi == "pmi2"


def test_the_runs_of_a_sweep_differ_in_their_settings_and_folders(config, tmp_path):
    jobs = submit_sweep(config, {"trainer.steps": [5, 6]}, overrides=["seed=7"], **JOB)
    assert [job.job_id for job in jobs] == ["17_0", "17_1"]
    runs = [job.submission().function for job in jobs]
    assert [run.run_dir for run in runs] == [str(tmp_path / "run" / f"steps={steps}") for steps in (5, 6)]
    assert runs[1].overrides == ("seed=7", "trainer.steps=6", f"run_dir={tmp_path / 'run' / 'steps=6'}")


def environment_of_sbatch(tmp_path):
    lines = (tmp_path / "sbatch.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_from_inside_a_job_nothing_of_it_leaks_into_the_next(config, tmp_path, monkeypatch):
    names = ("SLURM_JOB_ID", "SLURM_NTASKS", "SRUN_CPUS_PER_TASK", "SBATCH_ACCOUNT", "PMI_RANK", "PMIX_NAMESPACE")
    more = ("OMPI_COMM_WORLD_RANK", "SUBMITIT_EXECUTOR", "TBA_HPC_END_TIME", "RANK")
    for name in (*names, *more):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("PMIX_MCA_gds", "hash")
    before = dict(os.environ)
    submit(config, **JOB)
    environment = environment_of_sbatch(tmp_path)
    assert not environment.keys() & {*names, *more}
    assert (environment["SLURM_CONF"], environment["PMIX_MCA_gds"]) == ("/etc/slurm.conf", "hash")
    assert dict(os.environ) == before


def test_from_a_login_node_the_users_own_sbatch_variables_stay_in_force(config, tmp_path, monkeypatch):
    monkeypatch.setenv("SBATCH_ACCOUNT", "us")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "standard")
    submit(config, **JOB)
    assert environment_of_sbatch(tmp_path)["SBATCH_ACCOUNT"] == "us"


@pytest.mark.parametrize(
    ("overrides", "job", "message"),
    [
        ({"trainer.step": 5}, {}, "trainer.step = 5: no such setting; did you mean 'steps'?"),
        ({"distributed.trainers": 4}, {}, "distributed.trainers = 4 leaves no searcher among 4 ranks"),
        ({}, {"nodes": 1, "ranks_per_node": 1}, "a run needs at least 2 ranks"),
        ({}, {"rank_per_node": 2}, "rank_per_node = 2: no such setting; did you mean 'ranks_per_node'?"),
        ({}, {"minutes": 0}, "minutes = 0: Input should be greater than 0"),
        ({}, {"minutes": 3}, "minutes = 3 is too short for signal_seconds = 120"),
        ({}, {"cluster": "pbs"}, "cluster = 'pbs': Input should be 'slurm' or 'local'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_submitted(config, tmp_path, overrides, job, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        submit(config, overrides=overrides, **JOB | job)
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "sbatch.env").exists()


def test_a_refusal_of_sbatch_is_shown(config, tmp_path):
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n")
    with pytest.raises(ConfigError, match="sbatch refused the job: sbatch: error: invalid partition"):
        submit(config, **JOB)


def test_where_there_is_no_slurm_the_user_is_told_so(config, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"no Slurm here .* cluster = local"):
        submit(config, **JOB)


def modules_loaded_by(module):
    code = f"import sys, json, {module}; print(json.dumps(list(sys.modules)))"
    return set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout))


def test_nothing_heavy_is_loaded_to_submit():
    assert not {"torch", "mpi4py", "transformers"} & modules_loaded_by("tba_hpc.launch.submission")


def test_a_rank_loads_neither_submitit_nor_the_configuration_before_it_takes_signals():
    assert not {"submitit", "pydantic"} & modules_loaded_by("tba_hpc.launch.command")
