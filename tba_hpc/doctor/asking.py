"""Questions to other programs, with a bound. A library that crashes or hangs does so in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

Ask = Callable[[Sequence[str]], str]
"""`output_of`, or what stands in for it."""

_TAIL = 3  # lines that say why a program failed


class NoAnswerError(Exception):
    """A program could not be started, failed, or took too long; the message says which."""


def output_of(words: Sequence[str], text: str = "", seconds: float = 20.0) -> str:
    """What a program that is given `text` prints, first on standard output and then on standard error. Raises
    `NoAnswerError`."""
    pipe = subprocess.PIPE
    try:
        # close_fds: a launcher may connect to its rank by an open file.
        process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", close_fds=False
        )
        output = "\n".join(process.communicate(text, timeout=seconds))
    except OSError as error:
        raise NoAnswerError(f"{words[0]} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        process.kill()  # and no wait: what hangs in the kernel would not end
        raise NoAnswerError(f"no answer within {seconds:g} s") from None
    if process.returncode:
        tail = [line.strip() for line in output.splitlines() if line.strip()][-_TAIL:]
        raise NoAnswerError(f"exit code {process.returncode}: {' / '.join(tail) or 'nothing printed'}")
    return output


def answer_of(module: str, arguments: Sequence[str] = (), text: str = "", seconds: float = 120.0) -> dict[str, Any]:
    """The JSON object that a module of this package prints when it is run. Raises `NoAnswerError`."""
    lines = output_of([sys.executable, "-m", module, *arguments], text, seconds).splitlines()
    objects = [line for line in lines if line.startswith("{")]
    if not objects:
        raise NoAnswerError("ended without an answer")
    answer: dict[str, Any] = json.loads(objects[-1])
    return answer
