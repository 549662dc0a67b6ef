"""`tba-hpc grade`: lines in, verdicts out."""

import io
import json
import os
import subprocess
import sys

import pytest

from tba_hpc.config import TaskConfig
from tba_hpc.grade_command import grade_lines
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import Score, Task, make_task

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


class Recorder(Task):
    """Remembers how many responses it was asked for at a time."""

    def __init__(self):
        super().__init__({})
        self.batches = []

    def size(self, split):
        return 0

    def prompt(self, split, index):
        raise AssertionError("grading needs no problems of the task's own")

    def score(self, prompts, responses):
        self.batches.append(len(responses))
        return [Score(1.0, True, response) for response in responses]


class Pipe(io.BytesIO):
    """Bytes that come piece by piece. A read gets no more than has come."""

    def __init__(self, *pieces):
        super().__init__()
        self.pieces = list(pieces)

    def read1(self, size=-1):
        return self.pieces.pop(0) if self.pieces else b""


def line(**values):
    return json.dumps(values).encode() + b"\n"


def grade(task, *pieces):
    sink = io.BytesIO()
    grade_lines(task, Pipe(*pieces), sink)
    return [json.loads(result) for result in sink.getvalue().splitlines()]


def gsm8k():
    return make_task(TaskConfig(name="gsm8k"))


def test_each_line_gets_its_verdict_in_order():
    lines = [
        line(response="So it is 72.\n#### 72", answer="72"),
        line(response="#### 71", answer=72),
        line(response="", answer="She sold 72.\n#### 72"),
        line(response="#### 1,080", answer="1080", id="more does not matter"),
    ]
    results = grade(gsm8k(), *lines)
    assert [(result["reward"], result["extracted"]) for result in results] == [
        (1.0, "72"),
        (0.0, "71"),
        (0.0, None),
        (1.0, "1080"),
    ]
    assert all(list(result) == ["reward", "extracted", "why"] for result in results)
    assert "71" in results[1]["why"]


def test_every_task_can_grade():
    cases = {
        "arithmetic": ({"answer": "85"}, "85", "86"),
        "gsm8k": ({"answer": "85"}, "#### 85", "#### 86"),
        "hendrycks_math": ({"answer": "\\frac{1}{2}"}, "\\boxed{0.5}", "\\boxed{2}"),
        "countdown": ({"numbers": [3, 5, 7], "target": 26}, "3*7+5", "3*7-5"),
    }
    for name, (answer, right, wrong) in cases.items():
        task = make_task(TaskConfig(name=name))
        inside = {"prompt": {key: value for key, value in answer.items() if key != "answer"}, **answer}
        results = grade(
            task, line(response=right, **answer), line(response=wrong, **answer), line(response=right, **inside)
        )
        assert [result["reward"] for result in results] == [1.0, 0.0, 1.0], name


def test_what_a_task_needs_may_stand_in_the_prompt_alone():
    task = make_task(TaskConfig(name="countdown"))
    (result,) = grade(task, line(response="3*7+5", prompt={"numbers": [3, 5, 7], "target": 26}))
    assert result["reward"] == 1.0
    (result,) = grade(gsm8k(), line(response="#### 2", answer="2", prompt="What is 1+1?"))
    assert result["reward"] == 1.0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"response: 72\n", "line 3 of standard input: not JSON: "),
        (b'{"response": "\xff", "answer": "72"}\n', "line 3 of standard input: not JSON: "),
        (b"[" * 100_000 + b"\n", "line 3 of standard input: not JSON: "),
        (b'["72"]\n', "line 3 of standard input: holds list, not an object"),
        (line(answer="72"), 'line 3 of standard input: needs a "response", a text; it got None'),
        (line(response=72, answer="72"), 'line 3 of standard input: needs a "response", a text; it got 72'),
        (line(response="72"), 'line 3 of standard input: task Gsm8k needs an "answer"'),
        (line(response="72", answer="many"), "line 3 of standard input: task Gsm8k: "),
        (b'{"response": "72", "answer": "7', "line 3 of standard input: not JSON: "),
    ],
)
def test_a_bad_line_is_named_after_the_results_of_those_before_it(bad, message):
    sink = io.BytesIO()
    good = line(response="72", answer="72")
    with pytest.raises(ConfigError) as caught:
        grade_lines(gsm8k(), io.BytesIO(good + b"\n" + bad + (good if bad.endswith(b"\n") else b"")), sink)
    assert str(caught.value).startswith(message)
    assert [json.loads(result)["reward"] for result in sink.getvalue().splitlines()] == [1.0]


def test_what_has_come_is_graded_before_more_is_waited_for():
    first, second, third = (line(response=str(i), answer="0") for i in range(3))
    sink = io.BytesIO()
    written = []

    class Watched(Pipe):
        def read1(self, size=-1):
            written.append(len(sink.getvalue().splitlines()))
            return super().read1(size)

    task = Recorder()
    grade_lines(task, Watched(first + second[:5], second[5:] + b" \n", third.rstrip(b"\n")), sink)
    assert written == [0, 1, 2, 2]
    assert [json.loads(result)["extracted"] for result in sink.getvalue().splitlines()] == ["0", "1", "2"]
    assert task.batches == [1, 1, 1]


def test_many_lines_are_graded_256_at_a_time():
    task = Recorder()
    lines = [line(response=str(i), answer="0") for i in range(600)]
    assert [result["extracted"] for result in grade(task, b"".join(lines))] == [str(i) for i in range(600)]
    assert task.batches == [256, 256, 88]


def test_any_text_survives():
    responses = ["a\nb\u2028c", "“½” × −1", "\ud800", "\x00"]
    results = grade(Recorder(), *(line(response=response, answer="0") for response in responses))
    assert [result["extracted"] for result in results] == responses


def test_nothing_in_nothing_out():
    task = Recorder()
    assert grade(task) == grade(task, b"\n \n") == []
    assert task.batches == []


def command(*words):
    return [sys.executable, "-m", "tba_hpc", "grade", *words]


def test_the_command_grades_lines_as_they_come_and_ends_with_2_at_a_bad_one():
    job = subprocess.Popen(
        command("--task", "countdown"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    problem = {"numbers": [3, 5, 7], "target": 26}
    for response, reward in (("3*7+5", 1.0), ("3*7", 0.0)):
        job.stdin.write(line(response=response, **problem))
        job.stdin.flush()
        assert json.loads(job.stdout.readline())["reward"] == reward
    output, errors = job.communicate(b"3*7+5\n", timeout=60)
    assert (job.returncode, output) == (2, b"")
    assert errors.decode().startswith("error: line 3 of standard input: not JSON: ")


def test_the_command_takes_a_users_task(tmp_path):
    (tmp_path / "my_task.py").write_text(
        "from tba_hpc.settings import Settings\n"
        "from tba_hpc.tasks import Score, Task\n"
        "class Options(Settings):\n"
        "    points: float = 1.0\n"
        "class Exact(Task[Options]):\n"
        "    options_model = Options\n"
        "    def size(self, split): return 0\n"
        "    def prompt(self, split, index): raise IndexError(index)\n"
        "    def score(self, prompts, responses):\n"
        "        right = [p.answer == r for p, r in zip(prompts, responses, strict=True)]\n"
        "        return [Score(self.options.points * r, r, why='exactly' if r else 'not') for r in right]\n"
    )
    words = command("--task", "Exact", "--task-path", str(tmp_path / "my_task.py"), "--task-options", '{"points": 0.5}')
    done = subprocess.run(
        words,
        input=line(response="x", answer="x") + line(response="y", answer="x"),
        capture_output=True,
        env=ENVIRONMENT,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert [json.loads(result) for result in done.stdout.splitlines()] == [
        {"reward": 0.5, "extracted": None, "why": "exactly"},
        {"reward": 0.0, "extracted": None, "why": "not"},
    ]
