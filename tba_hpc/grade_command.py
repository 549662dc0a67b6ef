"""Grading responses that a user has, one JSON object a line: a look at a reward before it is trained on."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from tba_hpc.settings import ConfigError
from tba_hpc.tasks.base import Score, Task
from tba_hpc.trajectory import Prompt

_LINES_AT_A_TIME = 256
_BYTES_AT_A_TIME = 2**20


def grade_lines(task: Task[Any], source: io.BufferedIOBase, sink: BinaryIO) -> None:
    """Writes `{"reward": …, "extracted": …, "why": …}` for each line of `source`, `{"response": …, "answer": …}`, in
    order; blank lines are passed over. What else the task asks for stands beside these, or in an object `"prompt"`.

    Waits for a line, then grades what has come, at most 256 lines at a time, and writes the results before it waits
    again. Raises `ConfigError` naming the first line that is not as it should be, once those before it are written."""
    for batch in _batches(source):
        problems: list[Prompt] = []
        responses: list[str] = []
        mistake: ConfigError | None = None
        for number, line in batch:
            try:
                problem, response = _parse(task, line)
            except ConfigError as error:
                mistake = ConfigError(f"line {number} of standard input: {error}")
                break
            problems.append(problem)
            responses.append(response)
        if responses:
            sink.write(b"".join(map(_result, task.checked_scores(problems, responses))))
            sink.flush()
        if mistake is not None:
            raise mistake


def _batches(source: io.BufferedIOBase) -> Iterator[list[tuple[int, bytes]]]:
    """Lines that are not blank, with their numbers, as soon as they have come."""
    batch: list[tuple[int, bytes]] = []
    for number, line, more_has_come in _lines(source):
        if line.strip():
            batch.append((number, line))
        if len(batch) == _LINES_AT_A_TIME or (batch and not more_has_come):
            yield batch
            batch = []


def _lines(source: io.BufferedIOBase) -> Iterator[tuple[int, bytes, bool]]:
    """Each line with its number from 1, and whether there is another one that need not be waited for."""
    number, rest = 0, b""
    while chunk := source.read1(_BYTES_AT_A_TIME):
        *lines, rest = (rest + chunk).split(b"\n")
        for i, line in enumerate(lines, start=1):
            yield number + i, line, i < len(lines)
        number += len(lines)
    if rest:
        yield number + 1, rest, False


def _parse(task: Task[Any], line: bytes) -> tuple[Prompt, str]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"holds {type(values).__name__}, not an object")
    response = values.pop("response", None)
    if not isinstance(response, str):
        raise ConfigError(f'needs a "response", a text; it got {response!r}')
    more = values.pop("prompt") if isinstance(values.get("prompt"), Mapping) else {}
    return task.problem_of({**more, **values}), response


def _result(score: Score) -> bytes:
    values = {"reward": score.reward, "extracted": score.extracted, "why": score.why}
    # Half a surrogate pair, which UTF-8 cannot write, becomes the escape that JSON has for it.
    return (json.dumps(values, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
