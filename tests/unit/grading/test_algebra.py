"""The process in which algebra runs."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tba_hpc.grading.algebra import Algebra, worker_environment
from tba_hpc.grading.mathematics import MathGrader

COSTLY, EQUAL = (r"\boxed{(1+x_1+y+z)^{500}}", "x_1+1"), (r"\boxed{1+x}", "x+1")


def grade(grader, *problems):
    return grader.grade([response for response, _ in problems], [answer for _, answer in problems])


def worker_of(grader):
    return grader._algebra.pid


def running(pid):
    return Path(f"/proc/{pid}").exists()


@pytest.fixture(scope="module")
def grader():
    with MathGrader(seconds_per_answer=0.5, seconds_per_batch=1.5) as grader:
        assert grade(grader, EQUAL)[0].correct
        yield grader


def test_a_costly_answer_is_wrong_and_the_next_one_is_graded(grader):
    costly, equal = grade(grader, COSTLY, EQUAL)
    assert (costly.correct, costly.why) == (False, "algebra took more than 0.5 s")
    assert equal.correct


def test_a_batch_has_a_budget(grader):
    different = [(rf"\boxed{{(1+x_1+y+z)^{{{n}}}}}", "x_1+1") for n in range(500, 520)]
    started = time.monotonic()
    verdicts = grade(grader, *different, EQUAL, (r"\boxed{72}", "72"))
    assert time.monotonic() - started < 4
    assert verdicts[-2].why == "not compared: the 1.5 s of the batch were over"
    assert verdicts[-1].correct
    assert grade(grader, EQUAL)[0].correct


def test_the_same_question_is_asked_once(grader):
    assert {verdict.why for verdict in grade(grader, *[COSTLY] * 10)} == {"algebra took more than 0.5 s"}


def test_a_worker_does_not_mind_what_launchers_send_to_ranks(grader):
    worker = worker_of(grader)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(worker, number)
    assert grade(grader, EQUAL)[0].correct
    assert worker_of(grader) == worker


def test_workers_that_die_are_replaced():
    with MathGrader(seconds_per_answer=10) as grader:
        grade(grader, EQUAL)
        first = worker_of(grader)
        killer = threading.Timer(0.3, os.kill, (first, signal.SIGKILL))
        killer.start()
        died, equal = grade(grader, COSTLY, EQUAL)
        killer.join()
        assert (died.correct, died.why) == (False, "the grading worker died")
        assert equal.correct
        second = worker_of(grader)
        os.kill(second, signal.SIGKILL)
        time.sleep(0.2)  # between two batches
        assert grade(grader, EQUAL)[0].correct
        assert len({first, second, worker_of(grader)}) == 3


def test_a_worker_that_hangs_is_killed():
    algebra = Algebra()
    assert algebra.ready(60)
    hung = algebra.pid
    os.kill(hung, signal.SIGSTOP)
    assert not algebra.equal("1+x", "x+1", 0.2).equal
    assert not running(hung)
    assert algebra.pid is None
    algebra.close()


def test_a_grader_has_no_worker_before_the_first_question_and_none_when_closed():
    grader = MathGrader()
    grade(grader, (r"\boxed{72}", "72"), (r"\boxed{east}", r"\text{west}"), ("", "x"))
    assert worker_of(grader) is None
    grade(grader, EQUAL)
    worker = worker_of(grader)
    assert running(worker)
    grader.close()
    grader.close()
    assert not running(worker)


def test_a_grader_leaves_others_streams_and_processes_alone(grader, tmp_path):
    """Nor does its worker outlive it, or take modules from the working directory."""
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    program = """
import os, sys
from tba_hpc.grading.mathematics import MathGrader
grader = MathGrader()
verdicts = grader.grade([r"\\boxed{1+x}", r"\\boxed{x+++}", r"\\boxed{\\oops}"], ["x+1"] * 3)
print(grader._algebra.pid, [verdict.correct for verdict in verdicts], sys.stdin.read(), flush=True)
os._exit(0)
"""
    words = [sys.executable, "-P", "-c", program]
    done = subprocess.run(words, cwd=tmp_path, input="typed", capture_output=True, text=True, timeout=60, check=True)
    worker, _, rest = done.stdout.partition(" ")
    assert (rest, done.stderr) == ("[True, False, False] typed\n", "")
    assert int(worker) != worker_of(grader)
    assert grade(grader, (r"\boxed{2+x}", "x+2"))[0].correct
    deadline = time.monotonic() + 10
    while running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(worker)


def test_a_worker_loads_neither_mpi_nor_torch():
    program = "import sys, tba_hpc.grading.worker; print({'mpi4py', 'torch', 'numpy', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"


def test_a_worker_is_no_rank():
    of_ranks = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "MPI_LOCALRANKID", "HYDI_CONTROL_FD"]
    environment = worker_environment(dict.fromkeys(of_ranks, "1") | {"HOME": "/home", "PYTHONPATH": "there"})
    assert set(environment) == {"HOME", "PYTHONPATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"}
    assert environment["PYTHONPATH"].endswith(":there")


def test_a_worker_that_cannot_start_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "math_verify.py").write_text("raise ImportError('not installed')")
    monkeypatch.setattr("tba_hpc.grading.algebra.worker_environment", lambda env: env | {"PYTHONPATH": str(tmp_path)})
    algebra = Algebra()
    with pytest.raises(RuntimeError, match="the grading worker ended with exit code 1 before it was ready"):
        algebra.ready(60)
