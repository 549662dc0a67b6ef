"""The doctor as several ranks: one page, about all of them."""

import re
import sys

import pytest
from conftest import PROGRAMS

from tba_hpc.launch.local import mpiexec_words


@pytest.fixture
def doctor(start):
    """Not as `-m mpi4py`: the command itself is no MPI program."""

    def run(ranks, *arguments):
        words = [*mpiexec_words(None), "-n", str(ranks), sys.executable, str(PROGRAMS / "doctor.py")]
        return start([*words, *map(str, arguments)]).result(100)

    return run


def lines_named(job, name):
    return re.findall(rf"^(ok|warning|problem) +{name}  +(.*)$", job.stdout, re.MULTILINE)


def test_rank_0_prints_one_page_about_all_ranks(doctor, tmp_path):
    job = doctor(3, tmp_path / "not" / "yet", 90)
    assert job.code == 0, job.output
    assert len(lines_named(job, "Python")) == 1
    assert [level for level, _ in lines_named(job, "MPI")] == ["ok"]
    ((level, text),) = lines_named(job, "ranks")
    assert level == "ok"
    assert re.fullmatch(r"3: 3 on \S+", text)
    assert lines_named(job, "run_dir shared") == [("ok", "all 3 ranks read and write it")]
    ((level, text),) = lines_named(job, "clocks")
    assert level == "ok"
    assert re.fullmatch(r"ranks within 0\.\d{3} s of rank 0", text)
    assert job.stdout.splitlines()[-1].startswith("ready to run")
    assert "\x1b" not in job.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_does_not_come_is_waited_for_no_longer_than_the_bound(doctor, tmp_path):
    job = doctor(2, tmp_path, 5, 1)
    assert job.code == 1, job.output
    assert lines_named(job, "MPI") == [("problem", "no answer within 5 s")]
    assert len(lines_named(job, "run_dir writable")) == 1
    assert list(tmp_path.iterdir()) == []
