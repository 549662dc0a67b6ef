"""The process in which computer algebra runs: `python -m tba_hpc.grading.worker`, started by `algebra.py`.

Reads one JSON object a line from standard input, `{"given": …, "right": …, "seconds": …}`, and answers each on standard
output with `{"equal": …, "why": …}`, after a first line `{"ready": true}`. Ends with its input. It imports neither MPI
nor torch; nothing that it reads is evaluated as Python."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from types import FrameType
from typing import Any, TextIO

import math_verify

from tba_hpc.grading.formulas import are_equal

MEMORY = 2 * 2**30
"""Bytes of address space."""
_FOR_RANKS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_LATEX = [math_verify.LatexExtractionConfig(boxed_match_priority=0)]

_FIRST = (("1+x", "x+1"), (r"\sqrt{2}\pi", r"\frac{1}{2}"), ("(1,x)", r"\{y\}"))
"""Questions that load parsers and rules, which takes seconds."""


class OutOfTimeError(BaseException):
    """No `Exception`: algebra catches those and goes on."""


def main() -> None:
    for number in _FOR_RANKS:  # launchers send them to every process of a job; this one ends with its input
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _out_of_time)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies = _only_replies_to_stdout()
    for given, right in _FIRST:
        answer(given, right, seconds=60)
    _reply(replies, {"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        _reply(replies, answer(question["given"], question["right"], question["seconds"]))


def answer(given: str, right: str, seconds: float) -> dict[str, Any]:
    """Whether two formulas in LaTeX are equal, found within `seconds`."""
    _limit_processor_time(seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)  # again and again: a bare `except` may swallow the first
    try:
        try:
            return _equal(given, right)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except OutOfTimeError:
        return {"equal": False, "why": f"algebra took more than {seconds:.1f} s"}
    except (MemoryError, RecursionError):
        return {"equal": False, "why": "algebra took too much memory"}
    except Exception as error:
        return {"equal": False, "why": f"algebra failed with {type(error).__name__}"}


def _equal(given: str, right: str) -> dict[str, Any]:
    # The timeouts of the library are off: they are signals, too, and rounded to whole seconds. Only LaTeX is read: the
    # library's other way to read a formula evaluates it as Python.
    formulas = [
        math_verify.parse(rf"\boxed{{{text}}}", _LATEX, fallback_mode="no_fallback", parsing_timeout=None)
        for text in (right, given)
    ]
    if not all(formulas):
        return {"equal": False, "why": "no formula that algebra can read, and not the same text"}
    equal = are_equal(formulas[0][0], formulas[1][0])
    if equal is None:
        equal = math_verify.verify(
            *formulas, numeric_precision=50, allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=False
        )
    return {"equal": bool(equal), "why": "equal by algebra" if equal else "not equal by algebra"}


def _only_replies_to_stdout() -> TextIO:
    """Standard output for replies; what anything else prints or logs is dropped."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    logging.disable()
    return replies


def _limit_processor_time(seconds: float) -> None:
    """The kernel ends this process if a calculation in C does not see the alarm."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = usage.ru_utime + usage.ru_stime
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 2, hard))


def _out_of_time(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTimeError


def _reply(replies: TextIO, values: dict[str, Any]) -> None:
    replies.write(json.dumps(values) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
