"""The command as a user meets it; the runs themselves are tested under MPI."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tiny import tiny_settings

from tba_hpc.cli import main

CHECKPOINT = str(Path(__file__).parents[2] / "configs" / "checkpoints" / "arithmetic_sft")
RANK_VARIABLES = (
    *("PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALRANKID"),
    *("SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID"),
)


@pytest.fixture
def config(tmp_path):
    """A run whose model does not exist, which only matters to a run that starts."""
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(tiny_settings("/no/such/model", tmp_path / "run")))
    return path


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs the command in this process and returns (exit code, output)."""
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["tba-hpc", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, "".join(capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trainer.step=5"], "trainer.step = 5: no such setting; did you mean 'steps'?"),
        (["trainer.steps=soon"], "trainer.steps = 'soon': Input should be a valid integer"),
        (["trainer.batch_size=17"], "trainer.batch_size = 17 is not a multiple of trainer.samples_per_query = 4"),
        (["trainer.steps"], "override 'trainer.steps' is not of the form key=value"),
        ([], "how many ranks? Give --ranks N (at least 2), or --srun inside a Slurm job, or start this command with"),
        (["--srun"], "no Slurm allocation here (SLURM_JOB_ID is not set)"),
        (["--srun", "--ranks", "2"], "--ranks starts ranks on this machine, --srun on all nodes of the job"),
        (["--ranks", "2", "--overwrite", "--resume", "auto"], "--overwrite deletes the run that --resume goes on with"),
        (["--ranks", "1"], "a run needs at least 2 ranks"),
        (["--ranks", "-3"], "a run needs at least 2 ranks"),
        (["--ranks", "2", "distributed.trainers=2"], "distributed.trainers = 2 leaves no searcher among 2 ranks"),
        (["--ranks", "2", "--mpiexec", "/no/such/mpiexec"], "cannot start the MPI launcher '/no/such/mpiexec'"),
    ],
)
def test_a_users_mistake_ends_in_one_message_and_exit_code_2(command, config, words, message):
    code, output = command("train", config, *words)
    assert code == 2
    assert output.count("error: ") == 1
    assert output.startswith("error: ")
    assert message in output
    assert "Traceback" not in output
    assert "/no/such/model" not in output
    assert not (config.parent / "run").exists()


def test_a_configuration_that_is_not_there_is_a_users_mistake(command):
    assert command("train", "nowhere.yaml") == (2, "error: cannot read nowhere.yaml: No such file or directory\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["eval", "x", "--task-options", "{"], "--task-options is not JSON"),
        (["eval", "x", "--task-options", "[1]"], "--task-options holds list, not an object"),
        (["eval", "x", "--split", "dev"], "split = 'dev': Input should be 'train' or 'test'"),
        (["eval", "x", "--task", "arithmetik"], "no such task; did you mean 'arithmetic'"),
        (["sft", "nowhere.yaml"], "cannot read nowhere.yaml"),
        (["eval", "x", "--output", "no/such/folder/x.jsonl"], "--output 'no/such/folder/x.jsonl' cannot be written"),
        (["eval", "x", "--output", "/"], "--output '/' cannot be written"),
        (["eval", CHECKPOINT, "--max-response-tokens", "32"], "max_response_tokens = 32 leaves no room for a prompt"),
        (["eval", "x", "--samples", "4", "--k", "1,two"], "k.1 = 'two': Input should be a valid integer"),
        (["eval", "x", "--samples", "4", "--k", "1,8"], "k = 8 is more than samples = 4"),
        (["eval", "x", "--temperature", "0.6"], "temperature is of use with samples only: give --samples N, too"),
        (["eval", "x", "--samples", "4", "--temperature", "0"], "would give the same response in all samples"),
        (["eval", "x", "--batch-size", "0"], "batch_size = 0: Input should be greater than 0"),
    ],
)
def test_other_commands_report_mistakes_the_same_way(command, words, message):
    code, output = command(*words)
    assert code == 2
    assert output.count("error: ") == 1
    assert message in output


def test_every_option_of_eval_has_its_effect(command, tmp_path):
    output = tmp_path / "some.jsonl"
    words = ["--task-options", '{"max_operand": 9}', "--split", "train", "--problems", "6", "--batch-size", "8"]
    words += ["--max-response-tokens", "4", "--dtype", "bfloat16", "--samples", "4", "--temperature", "0.5"]
    words += ["--top-p", "0.9", "--seed", "3", "--k", "4,1", "--output", output, "--json"]
    code, text = command("eval", CHECKPOINT, *words)
    assert code == 0
    values = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    expected = {"task": "arithmetic", "split": "train", "problems": 6, "max_response_tokens": 4, "dtype": "bfloat16"}
    expected |= {"samples": 4, "temperature": 0.5, "top_p": 0.9, "seed": 3, "checkpoint": CHECKPOINT}
    assert expected.items() <= values.items()
    assert list(values["pass_at_k"]) == list(values["majority_at_k"]) == ["1", "4"]
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [len(record["samples"]) for record in records] == [4] * 6
    assert all(int(record["answer"]) <= 18 for record in records)
    code, text = command("eval", CHECKPOINT, *words)
    assert (code, f"--output {str(output)!r} exists" in text) == (2, True)


SUBMIT = ["--ranks-per-node", "2", "--minutes", "10"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trainer.step=5"], "trainer.step = 5: no such setting; did you mean 'steps'?"),
        (["distributed.trainers=2"], "distributed.trainers = 2 leaves no searcher among 2 ranks"),
        (["--cluster", "pbs"], "cluster = 'pbs': Input should be 'slurm' or 'local'"),
        (["--grid", "seed"], "--grid seed is not of the form seed=1,2,3"),
        (["--grid", "seed=1,1"], "two runs of the sweep would share run_dir"),
        (["--sbatch", "qos="], "--sbatch qos= is not of the form qos=long"),
    ],
)
def test_a_mistake_ends_submission_before_it_begins(command, config, words, message):
    code, output = command("submit", config, *SUBMIT, *words)
    assert code == 2
    assert output.count("error: ") == 1
    assert message in output


def test_a_dry_run_prints_the_batch_script_and_submits_nothing(config, tmp_path):
    """A folder of stand-ins is Slurm."""
    for name in ("srun", "sbatch"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
        (tmp_path / name).chmod(0o755)
    words = [
        *SUBMIT,
        "--nodes",
        3,
        "--sbatch",
        "qos=long",
        "--grid",
        "seed=1,2",
        "--folder",
        tmp_path / "jobs",
        "--dry-run",
    ]
    job = run_process("submit", config, *words, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (job.stderr, job.returncode) == ("", 0)
    directives = [line for line in job.stdout.splitlines() if line.startswith("#SBATCH")]
    for expected in ("--array=0-1%2", "--nodes=3", "--ntasks-per-node=2", "--qos=long", "--time=10"):
        assert f"#SBATCH {expected}" in directives
    assert not (tmp_path / "called").exists()
    assert not (tmp_path / "jobs").exists()


def run_process(*words, **variables):
    environment = {name: value for name, value in os.environ.items() if name not in RANK_VARIABLES}
    return subprocess.run(
        [sys.executable, "-m", "tba_hpc", *map(str, words)],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_launcher_gets_the_command_of_a_rank_word_for_word(config):
    """A program that prints its arguments stands in for it."""
    override = 'run_dir=a run\'s $HOME "quoted"'
    launcher = shlex.join([sys.executable, "-c", "import sys; print(*sys.argv[1:], sep='\\n')", "--its-own-option"])
    words = ["train", config, override, "trainer.steps=3", "--ranks", 3, "--overwrite", "--mpiexec", launcher]
    job = run_process(*words)
    rank_command = [sys.executable, "-m", "tba_hpc", "train", str(config), "--overwrite", override, "trainer.steps=3"]
    assert job.stdout.splitlines() == ["--its-own-option", "-n", "3", *rank_command]
    assert job.returncode == 0


def test_ranks_are_started_from_a_shell_that_is_itself_the_one_task_of_a_launcher(config):
    """As that of `srun --pty bash`, where rank variables are inherited."""
    program = "import os; print(*(name for name in os.environ if name.startswith('PMI_')), 'started')"
    launcher = shlex.join([sys.executable, "-c", program])
    words = ["train", config, "--ranks", 2, "--mpiexec", launcher]
    job = run_process(*words, PMI_RANK="0", PMI_SIZE="1", PMI_FD="9", SLURM_STEP_NUM_TASKS="1")
    assert (job.stdout, job.stderr, job.returncode) == ("started\n", "", 0)


@pytest.mark.parametrize("variable", ["SLURM_STEP_NUM_TASKS", "PMI_SIZE"])
def test_ranks_are_not_started_by_each_of_several_tasks(config, variable):
    launcher = shlex.join([sys.executable, "-c", "print('started')"])
    words = ["train", config, "--ranks", 2, "--mpiexec", launcher]
    job = run_process(*words, **{"PMI_RANK": "1", variable: "4"})
    assert job.returncode == 2
    assert "--ranks 2 would start so many ranks from each of the 4 tasks" in job.stderr
    assert "started\n" not in job.stdout


def test_inside_a_job_ranks_on_this_machine_know_nothing_of_it_but_its_end(config):
    """Or Hydra would start them by srun, on all nodes of the job."""
    program = "import os; print(sorted(name for name in os.environ if name.startswith(('SLURM_', 'TBA_HPC_END'))))"
    words = ["train", config, "--ranks", 2, "--mpiexec", shlex.join([sys.executable, "-c", program])]
    job = run_process(*words, SLURM_JOB_ID="17", SLURM_NODELIST="n[1-2]", SLURM_JOB_END_TIME="2000000000")
    assert (job.stdout, job.stderr) == ("['TBA_HPC_END_TIME']\n", "")


def test_srun_gets_the_command_of_a_rank_word_for_word(config, tmp_path):
    (tmp_path / "srun").write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\nexit 7\n')
    (tmp_path / "srun").chmod(0o755)
    override = 'run_dir=a run\'s $HOME "quoted"'
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "17", "SLURM_JOB_END_TIME": "2000000000"}
    job = run_process("train", config, override, "--srun", "--resume", "auto", **variables)
    command = [sys.executable, "-m", "tba_hpc", "train", str(config), "--resume", "auto", override]
    headline, *words = job.stdout.splitlines()
    assert headline.startswith("job 17, attempt 1,")
    assert words == ["--kill-on-bad-exit=1", "--mpi=pmi2", *command]
    assert (job.stderr, job.returncode) == ("", 7)


def test_srun_is_not_called_by_each_of_several_tasks(config):
    job = run_process("train", config, "--srun", SLURM_JOB_ID="17", SLURM_STEP_NUM_TASKS="4")
    assert job.returncode == 2
    assert "--srun would start so many ranks from each of the 4 tasks" in job.stderr


def test_an_mpi_without_threads_is_refused(config):
    job = run_process("train", config, PMI_RANK="0", MPI4PY_RC_THREAD_LEVEL="serialized")
    assert job.returncode == 2
    assert "was not started with MPI_THREAD_MULTIPLE" in job.stderr
    assert "Traceback" not in job.stderr


def test_the_exit_code_is_the_launchers(config):
    launcher = shlex.join([sys.executable, "-c", "raise SystemExit(7)"])
    assert run_process("train", config, "--ranks", 2, "--mpiexec", launcher).returncode == 7


def test_a_world_of_one_that_srun_made_of_several_is_refused(config):
    job = run_process("train", config, SLURM_STEP_NUM_TASKS="4")
    assert job.returncode == 2
    assert "srun started 4 tasks but MPI sees a world of 1" in job.stderr
    assert "srun --mpi=pmi2" in job.stderr
    assert "Traceback" not in job.stderr


def test_help_is_quick_to_load():
    code = "import sys, tba_hpc.cli; print(sorted({'torch', 'mpi4py', 'transformers', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_help_names_every_command():
    output = run_process("--help").stdout
    assert all(re.search(rf"\b{name}\b", output) for name in ("train", "submit", "sft", "eval"))
