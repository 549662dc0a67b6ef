import pytest

from tba_hpc.distributed.abort import abort_on_error
from tba_hpc.settings import ConfigError


class World:
    """Stands in for MPI, which a test must not abort."""

    def __init__(self):
        self.aborted = []

    def Abort(self, code):  # noqa: N802
        self.aborted.append(code)


@pytest.fixture
def world():
    return World()


def test_an_error_ends_the_job_and_every_line_of_its_traceback_carries_the_rank(world, capsys):
    with pytest.raises(RuntimeError), abort_on_error(world, "searcher 1 (rank 2)"):
        raise RuntimeError("two\nlines")
    lines = capsys.readouterr().err.splitlines()
    assert world.aborted == [1]
    assert all(line.startswith("[searcher 1 (rank 2)] ") for line in lines)
    assert lines[0].endswith("Traceback (most recent call last):")
    assert [line.removeprefix("[searcher 1 (rank 2)] ") for line in lines[-3:]] == [
        "RuntimeError: two",
        "lines",
        "ending the job",
    ]


def test_of_a_users_mistake_only_the_message_is_shown(world, capsys):
    with pytest.raises(ConfigError), abort_on_error(world, "rank 0"):
        raise ConfigError("a = 1: no")
    assert capsys.readouterr().err == "[rank 0] error: a = 1: no\n[rank 0] ending the job\n"
    assert world.aborted == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(2)])
def test_what_is_not_an_exception_ends_the_job_too(world, error):
    with pytest.raises(type(error)), abort_on_error(world, "rank 0"):
        raise error
    assert world.aborted == [1]


def test_a_good_end_ends_nothing(world):
    with abort_on_error(world, "rank 0"):
        pass
    with pytest.raises(SystemExit), abort_on_error(world, "rank 0"):
        raise SystemExit(0)
    assert world.aborted == []
