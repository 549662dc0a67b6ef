"""What one check has found, and the page of all findings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

Level = Literal["ok", "warning", "problem"]
STYLES: dict[Level, str] = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the page."""

    level: Level
    """problem: a job would fail. warning: it may be slow, or lose something."""
    name: str
    text: str
    advice: str = ""
    """What to do; there for every warning and problem."""


def judge(good: bool, otherwise: Level, name: str, text: str, advice: str) -> Finding:
    """Ok if `good`, and then without the advice."""
    return Finding("ok", name, text) if good else Finding(otherwise, name, text, advice)


def check(name: str, examine: Callable[[], Iterable[Finding]], seconds: float = 60.0) -> Sequence[Finding]:
    """The findings of `examine`. If it raises, that is the finding; if it takes longer than `seconds`, too."""
    found: Future[list[Finding]] = Future()

    def work() -> None:
        try:
            found.set_result(list(examine()))
        except BaseException as error:
            text = f"could not be checked: {type(error).__name__}: {error}"
            found.set_result([Finding("warning", name, text, "look at this by hand; the other lines do not need it")])

    # A thread, as a file system that hangs cannot be interrupted, only left behind.
    threading.Thread(target=work, name=f"check {name}", daemon=True).start()
    try:
        return found.result(seconds)
    except TimeoutError:
        return [Finding("problem", name, f"no answer within {seconds:g} s", "ask the site's support about this node")]


def show(findings: Sequence[Finding], console: Console) -> None:
    """Prints the page: a table on a terminal; elsewhere plain lines, however long."""
    if console.is_terminal:
        console.print(_table(findings))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            _print_plain(f"{finding.level:<9}{finding.name:<{width}}  {finding.text}", console)
            if finding.advice:
                _print_plain(f"{'':<{9 + width}}  → {finding.advice}", console)
    problems, warnings = (sum(finding.level == level for finding in findings) for level in ("problem", "warning"))
    verdict = "a job would fail here" if problems else "ready to run"
    _print_plain(f"{verdict} (problems: {problems}, warnings: {warnings})", console)


def _table(findings: Sequence[Finding]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for finding in findings:
        text = Text(finding.text)
        if finding.advice:
            text.append(f"\n→ {finding.advice}", style="italic")
        table.add_row(Text(finding.level, style=STYLES[finding.level]), finding.name, text)
    return table


def _print_plain(line: str, console: Console) -> None:
    console.print(line, soft_wrap=True, markup=False, highlight=False)
