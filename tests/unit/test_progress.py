import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from tba_hpc.progress import TERMINAL_COLUMNS, ProgressDisplay, make_console, show_error

COLUMNS = (("a/b", "first", ".2f"), ("c", "second", ".0f"))


def plain_display(total=10):
    console = Console(file=io.StringIO(), width=40)
    return ProgressDisplay(console, "step", total, COLUMNS), console.file


def test_without_a_terminal_the_first_and_the_last_step_make_a_line_each():
    display, output = plain_display()
    with display:
        for step in range(1, 11):
            display.update(step, {"a/b": step / 3, "c": 7.0, "unknown": 1.0})
    lines = output.getvalue().splitlines()
    assert lines[0].startswith("step 1/10 | first 0.33 | second 7 | left ")
    assert lines[-1].startswith("step 10/10 | first 3.33 | second 7 | left 0s")
    assert 2 <= len(lines) < 10


def test_a_metric_that_is_not_there_yet_is_left_out():
    display, output = plain_display()
    with display:
        display.update(10, {"c": 1.0})
    assert output.getvalue().startswith("step 10/10 | second 1 | left")


def test_time_is_counted_from_the_moment_the_display_is_entered(monkeypatch):
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("tba_hpc.progress.time", clock)
    display, output = plain_display()
    assert display._progress.tasks[0].start_time is None
    clock.now += 500  # an evaluation before the first step
    with display:
        clock.now += 10
        display.update(2, {})
    assert output.getvalue() == "step 2/10 | left 40s\n"
    assert display._progress.tasks[0].start_time is not None


def test_a_terminal_gets_a_panel():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with ProgressDisplay(console, "step", 10, COLUMNS) as display:
        display.update(4, {"a/b": 0.5, "c": 3.0})
        display._live.refresh()
        shown = console.file.getvalue()
    for text in ("4/10", "first", "0.50", "second"):
        assert text in shown


@pytest.mark.parametrize("columns", ["123", None])
def test_the_launcher_can_tell_of_a_terminal_behind_a_pipe(monkeypatch, columns):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    if columns:
        monkeypatch.setenv(TERMINAL_COLUMNS, columns)
    else:
        monkeypatch.delenv(TERMINAL_COLUMNS, raising=False)
    console = make_console()
    assert console.is_terminal == (columns is not None)
    if columns:
        assert console.width == 123


def test_an_error_is_shown_whole_and_without_interpretation(capsys):
    text = "a.b = '[red]': " + "long " * 60
    show_error(ValueError(text))
    assert capsys.readouterr().err == f"error: {text}\n"
