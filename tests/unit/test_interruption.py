import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tba_hpc import interruption
from tba_hpc.interruption import END_TIME_VARIABLE, SIGNALS, Deadline, Interruption, job_end


@pytest.fixture
def watched():
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield Interruption()
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noticed_and_does_not_end_the_process(watched, number):
    assert not watched.has_come()
    os.kill(os.getpid(), number)
    assert watched.has_come()
    assert watched.signal is number


def test_the_first_signal_is_the_one_that_is_told(watched):
    os.kill(os.getpid(), signal.SIGTERM)
    assert watched.signal is signal.SIGTERM
    os.kill(os.getpid(), signal.SIGUSR1)
    assert watched.signal is signal.SIGTERM


def test_another_signal_is_none_of_its_business(watched):
    before = signal.signal(signal.SIGWINCH, lambda *_: None)
    os.kill(os.getpid(), signal.SIGWINCH)
    signal.signal(signal.SIGWINCH, before)
    assert not watched.has_come()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert watched.has_come()


def test_a_thread_sees_it_while_the_main_thread_is_inside_a_library():
    """Where no handler runs until the call returns."""
    program = """
import hashlib, os, signal, threading, time
from tba_hpc.interruption import Interruption
watched, seen = Interruption(), []
def watch():
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.1)
    seen.append((watched.has_come(), time.monotonic()))
thread = threading.Thread(target=watch)
thread.start()
hashlib.pbkdf2_hmac("sha256", b"", b"", 3_000_000)
returned = time.monotonic()
thread.join()
print(seen[0][0], seen[0][1] < returned)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "True True", done.stderr


def test_any_thread_may_ask(watched):
    os.kill(os.getpid(), signal.SIGUSR1)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(watched.has_come()))
    thread.start()
    thread.join(5)
    assert answers == [True]


@pytest.mark.parametrize(
    ("environment", "end"),
    [
        ({}, None),
        ({END_TIME_VARIABLE: "1700"}, 1700.0),
        ({END_TIME_VARIABLE: "1700", "SLURM_JOB_END_TIME": "1800"}, 1700.0),
        ({"SLURM_JOB_END_TIME": "1800", "SLURM_JOB_ID": "7"}, 1800.0),
        ({END_TIME_VARIABLE: "", "SLURM_JOB_END_TIME": "soon"}, None),
    ],
)
def test_the_environment_tells_when_the_job_ends(environment, end):
    assert job_end(environment) == end


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        ("echo 2026-01-02T03:04:05", time.mktime((2026, 1, 2, 3, 4, 5, 0, 0, -1))),
        ("echo Unknown", None),
        ("echo N/A", None),
        ("exit 1", None),
        ("true", None),
    ],
)
def test_slurm_is_asked_where_the_environment_does_not_tell(tmp_path, monkeypatch, answer, end):
    squeue = tmp_path / "squeue"
    squeue.write_text(f'#!/bin/sh\ntest "$3" = 42 || exit 3\n{answer}\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert job_end({"SLURM_JOB_ID": "42"}) == end


def test_without_slurm_nobody_can_be_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert job_end({"SLURM_JOB_ID": "42"}) is None


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(interruption.time, "time", lambda: now[0])
    return now


def test_a_deadline_leaves_room_for_the_margin_the_save_and_the_longest_step(clock):
    deadline = Deadline(end=1200.0, margin_seconds=60)
    clock[0] = 1030  # a step of 30 s
    assert not deadline.has_come(save_seconds=10)
    clock[0] = 1035
    assert not deadline.has_come(save_seconds=10)
    clock[0] = 1060
    assert not deadline.has_come(save_seconds=10)
    clock[0] = 1085
    assert not deadline.has_come(save_seconds=10)
    clock[0] = 1100  # 100 s are left: 60 + 10 + 30
    assert deadline.has_come(save_seconds=10)
    assert not deadline.has_come(save_seconds=9)


def test_a_job_without_an_end_has_no_deadline(clock):
    deadline = Deadline(None, 60)
    clock[0] = 1e12
    assert not deadline.has_come(save_seconds=1e9)
