import pytest

from tba_hpc.config import TaskConfig
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import make_task
from tba_hpc.trajectory import Message

pytestmark = pytest.mark.usefixtures("data_cache")
HALF = {"problem": "What is $\\frac{2}{4}$?", "solution": "It is $\\boxed{\\frac{1}{2}}$.", "level": "Level 1"}
SUM = {
    "problem": "What is $1+1$, written out in full?",
    "solution": "$\\boxed{3}$, no, $\\boxed{2}$.",
    "level": "Level 3",
}
ODD = {"problem": "What is $p$?", "solution": "$\\boxed{q}$", "level": "Level ?"}
TEST = {"problem": "What is $2+2$?", "solution": "It is $\\boxed{4}$.", "answer": "4", "level": 5}


@pytest.fixture
def make(jsonl):
    def make_math(train=(HALF, SUM, ODD), test=(TEST,), **options):
        paths = {"train": jsonl(*train, name="train.jsonl"), "test": jsonl(*test, name="test.jsonl")}
        return make_task(TaskConfig(name="hendrycks_math", options=paths | options))

    return make_math


def test_prompts_are_conversations_as_qwens_models_know_them(make):
    task = make()
    prompt = task.prompt("train", 0)
    assert prompt.messages == (
        Message("system", "Please reason step by step, and put your final answer within \\boxed{}."),
        Message("user", "What is $\\frac{2}{4}$?"),
    )
    assert prompt.answer == "\\frac{1}{2}"
    assert task.solution(prompt) == HALF["solution"]


def test_the_answer_is_its_column_or_else_the_last_box_of_the_solution(make):
    task = make()
    assert [task.prompt("train", i).answer for i in range(3)] == ["\\frac{1}{2}", "2", "q"]
    assert task.prompt("test", 0).answer == "4"
    some_have_none = make(train=[{**TEST, "answer": None}, {**TEST, "answer": "5"}])
    assert [some_have_none.prompt("train", i).answer for i in range(2)] == ["4", "5"]


@pytest.mark.parametrize(
    ("options", "answers"),
    [
        ({}, ["\\frac{1}{2}", "2", "q"]),
        ({"levels": [1, 2]}, ["\\frac{1}{2}"]),
        ({"levels": [3, 1]}, ["\\frac{1}{2}", "2"]),
        ({"max_problem_characters": 22}, ["\\frac{1}{2}", "q"]),
        ({"max_problem_characters": 22, "levels": [1, 3]}, ["\\frac{1}{2}"]),
    ],
)
def test_some_training_problems_may_be_left_out_but_no_test_problems(make, options, answers):
    task = make(**options)
    assert [task.prompt("train", i).answer for i in range(task.size("train"))] == answers
    assert [task.prompt("train", i).id for i in range(task.size("train"))] == list(range(len(answers)))
    assert task.size("test") == 1


def test_levels_are_numbers_or_written_out(make):
    task = make(train=[{**TEST, "level": level} for level in ("Level 5", "5", "Level 4", None)], levels=[5])
    assert task.size("train") == 2
    assert make(train=[TEST, {**TEST, "level": 4}], levels=[4]).size("train") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": [4]}, "train.jsonl: the task's options leave none of its 3 rows"),
        ({"levels": [1], "train": [TEST | {"level": None}]}, "the task's options leave none of its 1 rows"),
        ({"levels": [1], "train": [{"problem": "x", "answer": "y"}]}, "has no column 'level'"),
        ({"train": [{"problem": "x", "level": 1}]}, "has no column 'solution'"),
        ({"train": [{"question": "x", "answer": "y"}]}, "has no column 'problem'"),
        ({"train": [{"problem": "x", "solution": "It is 4."}]}, "row 1 has no answer, and its solution no \\boxed{…}"),
        ({"train": [{"problem": "x", "solution": "\\boxed{"}]}, "row 1 has no answer, and its solution no \\boxed{…}"),
        (
            {"train": [{"problem": "x", "solution": "\\boxed{ }"}]},
            "row 1 has no answer, and its solution no \\boxed{…}",
        ),
        ({"train": [{"problem": "", "answer": "y"}]}, "row 1: problem is '', not a text"),
    ],
)
def test_data_that_is_not_as_it_should_be_is_named(make, options, message):
    with pytest.raises(ConfigError) as caught:
        make(**options).prompt("train", 0)
    assert message in str(caught.value)


def test_data_without_solutions_will_do_for_all_but_fine_tuning(make):
    task = make(train=[{"problem": "x", "answer": "y"}])
    prompt = task.prompt("train", 0)
    with pytest.raises(ConfigError, match=r"train\.jsonl: row 1 has no solution to learn from"):
        task.solution(prompt)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": []}, "task.options.levels = []: "),
        ({"levels": [0]}, "task.options.levels"),
        ({"levels": ["3"]}, "task.options.levels"),
        ({"max_problem_characters": 0}, "task.options.max_problem_characters = 0: "),
        ({"seconds_per_answer": 0}, "task.options.seconds_per_answer = 0: "),
        ({"level": [3]}, "task.options.level = [3]: no such setting; did you mean 'levels'?"),
    ],
)
def test_mistakes_in_the_options_are_named(make, options, message):
    with pytest.raises(ConfigError) as caught:
        make(**options)
    assert message in str(caught.value)


def test_the_formula_is_what_counts(make):
    task = make()
    responses = ["So it is $\\boxed{\\frac12}$.", "\\boxed{0.5}", "\\boxed{2}", "", "\\boxed{"]
    scores = task.score([task.prompt("train", 0)] * len(responses), responses)
    assert [score.correct for score in scores] == [True, True, False, False, False]
    assert [score.reward for score in scores] == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert scores[3].extracted is None


def test_an_answer_may_be_a_whole_solution():
    task = make_task(TaskConfig(name="hendrycks_math"))  # whose data cannot be had here
    for answer in ("\\frac{1}{2}", HALF["solution"], 0.5):
        (score,) = task.score([task.problem_of({"answer": answer})], ["\\boxed{1/2}"])
        assert score.correct
    for answer in (None, "", " ", "\\boxed{}", "\\boxed{1"):
        with pytest.raises(ConfigError, match="HendrycksMath"):
            task.problem_of({"answer": answer})


def test_the_real_data(data_dir):
    options = {"train": str(data_dir / "math500_test.jsonl"), "test": str(data_dir / "math500_test.jsonl")}
    task = make_task(TaskConfig(name="hendrycks_math", options=options))
    assert task.size("test") == 500
    prompts = [task.prompt("test", index) for index in range(20)]
    assert prompts[0].answer == "\\left( 3, \\frac{\\pi}{2} \\right)"
    scores = task.score(prompts, [task.solution(prompt) for prompt in prompts])
    assert [score.correct for score in scores] == [True] * 20
    assert 100 < make_task(TaskConfig(name="hendrycks_math", options=options | {"levels": [5]})).size("train") < 200
