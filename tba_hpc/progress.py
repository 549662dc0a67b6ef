"""What a person sees while a run goes on: a live panel on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

Columns = tuple[tuple[str, str, str], ...]
"""(metric, heading, format) of each number shown."""

TERMINAL_COLUMNS = "TBA_HPC_TERMINAL_COLUMNS"
"""Environment variable by which a launcher tells rank 0, which sees only mpiexec's pipe, that the pipe ends at a
terminal this wide."""

_PLAIN_EVERY_SECONDS = 5.0


def make_console() -> Console:
    """Standard output; a terminal also where `TERMINAL_COLUMNS` says so."""
    columns = os.environ.get(TERMINAL_COLUMNS)
    return Console(force_terminal=True, width=int(columns)) if columns else Console()


def show_error(error: Exception) -> None:
    """A user's mistake, on standard error, without a traceback."""
    Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)


class ProgressDisplay:
    """Use as a context manager, inside which time is counted; `update` after each step."""

    def __init__(self, console: Console, title: str, total: int, columns: Columns, first: int = 0) -> None:
        """`first`: steps of the total that were done before."""
        self._console = console
        self._columns = columns
        self._total = total
        self._first = first
        self._title = title
        self._last_plain = 0.0
        self._started = 0.0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._bar = self._progress.add_task(title, total=total, completed=first, start=False)
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> ProgressDisplay:
        self._started = time.monotonic()
        self._progress.start_task(self._bar)
        if self._live:
            self._live.start()
            self._live.update(self._progress)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shows the state after `step` of the total."""
        if self._live:
            self._progress.update(self._bar, completed=step)
            self._live.update(Group(self._progress, self._table(metrics)))
        elif step >= self._total or time.monotonic() - self._last_plain >= _PLAIN_EVERY_SECONDS:
            self._last_plain = time.monotonic()
            self._console.print(self._line(step, metrics), soft_wrap=True, highlight=False, markup=False)

    def _table(self, metrics: Mapping[str, float]) -> Table:
        table = Table.grid(padding=(0, 2))
        shown = [(heading, format(metrics[name], form)) for name, heading, form in self._columns if name in metrics]
        half = -(-len(shown) // 2)
        for _ in range(half):
            table.add_column(justify="right")
        for row in (shown[:half], shown[half:]):
            table.add_row(*(f"[dim]{heading}[/dim] [bold]{value}[/bold]" for heading, value in row))
        return table

    def _line(self, step: int, metrics: Mapping[str, float]) -> str:
        shown = [f"{heading} {metrics[name]:{form}}" for name, heading, form in self._columns if name in metrics]
        elapsed = time.monotonic() - self._started
        left = elapsed / max(step - self._first, 1) * (self._total - step)
        return " | ".join([f"{self._title} {step}/{self._total}", *shown, f"left {left:.0f}s"])
