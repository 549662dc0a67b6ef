import sys
import time
from importlib.metadata import EntryPoint

import pytest

from tba_hpc.config import TaskConfig
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import make_task
from tba_hpc.tasks.arithmetic import Arithmetic

SHOUT = """
from __future__ import annotations

from dataclasses import dataclass

from tba_hpc.settings import Settings
from tba_hpc.tasks import Score, Task
from tba_hpc.trajectory import Prompt


@dataclass
class Word:
    text: str


class ShoutOptions(Settings):
    mark: str = "!"


class Shout(Task[ShoutOptions]):
    options_model = ShoutOptions

    def size(self, split):
        return 1

    def prompt(self, split, index):
        word = Word("hello")
        return Prompt(id=index, text=word.text, answer=word.text.upper() + self.options.mark)

    def score(self, prompts, responses):
        return [Score(float(r == p.answer), r == p.answer) for p, r in zip(prompts, responses, strict=True)]


class Half(Task[ShoutOptions]):
    def size(self, split):
        return 1


class NoOptions(Shout):
    options_model = Settings

    def prompt(self, split, index):
        return Prompt(id=index, text="", answer="")


not_a_task = 5
"""


@pytest.fixture
def make(tmp_path):
    """A task of a user's file."""

    def make_from(code, name="Shout", file="my_task.py", **options):
        path = tmp_path / file
        path.write_text(code)
        return make_task(TaskConfig(name=name, path=path, options=options))

    return make_from


def test_a_users_file_is_a_task_like_any_other(make):
    modules = set(sys.modules)
    task = make(SHOUT, mark="?")
    prompt = task.prompt("train", 0)
    assert [score.correct for score in task.score([prompt] * 2, ["HELLO?", "HELLO!"])] == [True, False]
    assert "my_task" not in sys.modules
    assert all(name.startswith("_tba_hpc_task_") for name in set(sys.modules) - modules)
    with pytest.raises(ConfigError, match=r"task\.options\.marks = .*did you mean 'mark'"):
        make(SHOUT, marks="?")


def test_a_task_need_not_have_options(make):
    assert make(SHOUT, name="NoOptions").size("train") == 1
    with pytest.raises(ConfigError, match=r"task\.options\.mark = '!': no such setting"):
        make(SHOUT, name="NoOptions", mark="!")


def test_two_files_of_one_name_are_two_tasks(tmp_path, make):
    (tmp_path / "other").mkdir()
    first = make(SHOUT)
    second = make(SHOUT.replace("hello", "bye"), file="other/my_task.py")
    assert [task.prompt("train", 0).text for task in (first, second)] == ["hello", "bye"]


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        ("x = (", "Shout", "task.path: {path} fails: SyntaxError: '(' was never closed (my_task.py, line 1)"),
        ("x = 1\ny = 1 / 0\n", "Shout", "task.path: {path} fails in line 2: ZeroDivisionError: division by zero"),
        ("import no_such_package", "Shout", "fails in line 1: ModuleNotFoundError: No module named 'no_such_package'"),
        ("import sys\n\nsys.exit(0)\n", "Shout", "task.path: {path} fails in line 3: SystemExit: 0"),
        ("", "Shout", "task.name = 'Shout': {path} has no such class; there is no task in it"),
        (
            SHOUT,
            "Shuot",
            "task.name = 'Shuot': {path} has no such class; did you mean 'Shout'? allowed: Half, NoOptions",
        ),
        (SHOUT, "not_a_task", "not_a_task of {path} is not a subclass of tba_hpc.tasks.Task"),
        (SHOUT, "Word", "Word of {path} is not a subclass of tba_hpc.tasks.Task"),
        (SHOUT, "Half", "Half of {path} is no whole task: it lacks prompt, score"),
    ],
)
def test_what_is_wrong_with_a_users_file_is_said(make, tmp_path, code, name, message):
    modules = set(sys.modules)
    with pytest.raises(ConfigError) as caught:
        make(code, name)
    assert message.format(path=tmp_path / "my_task.py") in str(caught.value)
    if code != SHOUT and code:
        assert set(sys.modules) == modules


def test_a_users_file_has_to_be_there_and_to_be_python(make, tmp_path):
    with pytest.raises(ConfigError, match=r"task\.path: there is no file .*none\.py"):
        make_task(TaskConfig(name="Shout", path=tmp_path / "none.py"))
    with pytest.raises(ConfigError, match=r"my_task\.txt is not a Python file: its name has to end in \.py"):
        make(SHOUT, file="my_task.txt")


@pytest.fixture
def offer(monkeypatch):
    """Installs a package with tasks, as far as `importlib.metadata` can tell."""

    def offer_tasks(**values):
        entries = [EntryPoint(name, value, "tba_hpc.tasks") for name, value in values.items()]

        def entry_points(group):
            return entries if group == "tba_hpc.tasks" else []

        monkeypatch.setattr("tba_hpc.tasks.lookup.entry_points", entry_points)

    return offer_tasks


def test_installed_packages_may_offer_tasks(offer):
    offer(sums="tba_hpc.tasks.arithmetic:Arithmetic")
    task = make_task(TaskConfig(name="sums", options={"max_operand": 9}))
    assert isinstance(task, Arithmetic)
    assert task.options.max_operand == 9


def test_the_packages_own_tasks_go_before_offered_ones(offer):
    offer(arithmetic="no.such:thing")
    assert isinstance(make_task(TaskConfig(name="arithmetic")), Arithmetic)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no.such:Thing", "'sums' (no.such:Thing) cannot be loaded: ModuleNotFoundError"),
        ("tba_hpc.tasks:Nothing", "'sums' (tba_hpc.tasks:Nothing) cannot be loaded: AttributeError"),
        ("tba_hpc.tasks:make_task", "'sums' (tba_hpc.tasks:make_task) is not a subclass of tba_hpc.tasks.Task"),
        ("tba_hpc.tasks:Task", "'sums' (tba_hpc.tasks:Task) is no whole task: it lacks prompt, score, size"),
    ],
)
def test_what_is_wrong_with_an_offered_task_is_said(offer, value, message):
    offer(sums=value)
    with pytest.raises(ConfigError) as caught:
        make_task(TaskConfig(name="sums"))
    assert message in str(caught.value)


def test_an_unknown_name_lists_all_there_are(offer):
    offer(sums="tba_hpc.tasks.arithmetic:Arithmetic")
    with pytest.raises(ConfigError) as caught:
        make_task(TaskConfig(name="sumz"))
    assert "task.name = 'sumz': no such task; did you mean 'sums'? allowed: arithmetic, countdown, gsm8k," in str(
        caught.value
    )


@pytest.mark.parametrize("name", ["gsm8k", "hendrycks_math"])
def test_making_a_task_is_cheap(name):
    """Every rank does it; only those that ask for a problem load the data."""
    started = time.process_time()
    make_task(TaskConfig(name=name, options={"train": "none.jsonl", "test": "none.jsonl"}))
    assert time.process_time() - started < 0.1
