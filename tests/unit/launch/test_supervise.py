"""The supervisor with small launchers of its own, in a process of its own where signals are sent."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tba_hpc.interruption import SIGNALS
from tba_hpc.launch import supervise as module
from tba_hpc.launch.supervise import supervise
from tba_hpc.settings import ConfigError

COUNTS_REQUESTS = """
    import signal, sys, time
    received = []
    signal.signal(signal.SIGUSR1, lambda *_: received.append(1))
    print("ready", flush=True)
    while len(received) < {requests}:
        time.sleep(0.01)
    sys.exit(75)
"""
SUPERVISOR = """
    import os, sys
    from tba_hpc.launch.supervise import supervise
    print("code", supervise([sys.executable, "-c", {launcher!r}], os.environ, start_up_seconds={start_up}), flush=True)
"""


def python(code):
    return [sys.executable, "-c", textwrap.dedent(code)]


def start(launcher, start_up=0.0):
    """A supervisor of `launcher`, once it has said that it is ready."""
    code = SUPERVISOR.format(launcher=textwrap.dedent(launcher), start_up=start_up)
    process = subprocess.Popen(python(code), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def finish(process):
    output, errors = process.communicate(timeout=30)
    assert errors == ""
    return output


@pytest.mark.parametrize(
    ("launcher", "code"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 128 + 9),
        ("import os; raise SystemExit(os.environ != {'ONLY': 'this', 'LC_CTYPE': os.environ.get('LC_CTYPE')})", 0),
    ],
)
def test_the_exit_code_and_the_environment_are_those_of_the_launcher(launcher, code):
    assert supervise(python(launcher), {"ONLY": "this", "LC_CTYPE": "C.UTF-8"}) == code


def test_a_launcher_that_is_not_there_is_a_users_mistake():
    with pytest.raises(ConfigError, match="cannot start the launcher '/no/such/srun': No such file"):
        supervise(["/no/such/srun"], os.environ)


@pytest.mark.parametrize("sent", SIGNALS, ids=lambda number: number.name)
def test_a_request_reaches_the_launcher_as_usr1(sent):
    supervisor = start(COUNTS_REQUESTS.format(requests=1))
    supervisor.send_signal(sent)
    assert finish(supervisor) == "code 75\n"


def test_several_requests_reach_it():
    supervisor = start(COUNTS_REQUESTS.format(requests=2))
    for number in (signal.SIGUSR1, signal.SIGTERM):
        supervisor.send_signal(number)
        time.sleep(1.5)
    assert finish(supervisor) == "code 75\n"


def test_a_request_that_comes_while_ranks_start_is_kept_until_they_are_up():
    """The launcher prints before it has a handler: the signal would end it."""
    launcher = "import time; print('ready', flush=True); time.sleep(1)\n" + textwrap.dedent(
        COUNTS_REQUESTS.format(requests=1)
    )
    supervisor = start(launcher, start_up=2.0)
    supervisor.send_signal(signal.SIGUSR1)
    assert finish(supervisor) == "ready\ncode 75\n"


def test_a_request_to_a_launcher_that_is_gone_does_no_harm():
    supervisor = start("print('ready', flush=True)", start_up=100.0)
    supervisor.send_signal(signal.SIGUSR1)
    assert finish(supervisor) == "code 0\n"


def test_handlers_are_as_before_when_it_returns():
    before = [signal.getsignal(number) for number in SIGNALS]
    supervise(python("pass"), os.environ)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_an_exception_ends_the_launcher_and_puts_handlers_back(monkeypatch, tmp_path):
    """As an interrupt from the keyboard."""
    before = [signal.getsignal(number) for number in SIGNALS]
    started = []

    def interrupt(launcher):
        started.append(launcher)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_ended", interrupt)
    with pytest.raises(KeyboardInterrupt):
        supervise(["sleep", "60"], os.environ)
    assert started[0].returncode == -signal.SIGTERM
    assert [signal.getsignal(number) for number in SIGNALS] == before
