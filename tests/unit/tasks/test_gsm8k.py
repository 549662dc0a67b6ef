import json

import pytest

from tba_hpc.config import TaskConfig
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import make_task
from tba_hpc.trajectory import Message

pytestmark = pytest.mark.usefixtures("data_cache")
CLIPS = {
    "question": "How many clips?",
    "answer": "She sold 48/2 = <<48/2=24>>24 clips.\n48+24 = <<48+24=72>>72\n#### 72",
}
PAY = {"question": "How much does she earn?", "answer": "12/60 = $<<12/60=0.2>>0.2 a minute: $10.\n#### 10"}
SIZE = {"question": "How large?", "answer": "It is large.\n#### 1,080"}


@pytest.fixture
def make(jsonl):
    """A task on files of these problems."""

    def make_gsm8k(**options):
        train = jsonl(CLIPS, PAY, SIZE, name="train.jsonl")
        test = jsonl(SIZE, name="test.jsonl")
        return make_task(TaskConfig(name="gsm8k", options={"train": train, "test": test, **options}))

    return make_gsm8k


def test_prompts_and_solutions_are_those_of_the_published_supervised_checkpoint(make):
    task = make()
    prompt = task.prompt("train", 0)
    assert (prompt.id, prompt.answer, prompt.messages) == (0, "72", ())
    assert prompt.text == "[MATH_TASK] Problem:\nHow many clips?\n\nSolution:"
    assert task.solution(prompt) == "\nShe sold 48/2 = 24 clips.\n48+24 = 72\n#### 72\n"
    assert (task.size("train"), task.size("test"), task.prompt("test", 0).answer) == (3, 1, "1,080")


def test_calculator_annotations_stay_where_they_are_asked_for(make):
    task = make(calculator_annotations=True, prompt={"response": " {solution}"})
    assert task.solution(task.prompt("train", 0)) == " " + CLIPS["answer"]


def test_shots_are_the_first_training_problems_but_never_the_one_that_is_asked(make):
    task = make(prompt={"template": "Q: {question} A:", "response": " {solution}", "shots": 2, "separator": "\n"})
    clips = "Q: How many clips? A: She sold 48/2 = 24 clips.\n48+24 = 72\n#### 72\n"
    pay = "Q: How much does she earn? A: 12/60 = $0.2 a minute: $10.\n#### 10\n"
    size = "Q: How large? A: It is large.\n#### 1,080\n"
    assert task.prompt("test", 0).text == clips + pay + "Q: How large? A:"
    assert task.prompt("train", 0).text == pay + size + "Q: How many clips? A:"
    assert task.prompt("train", 1).text == clips + size + "Q: How much does she earn? A:"
    assert task.prompt("train", 2).text == clips + pay + "Q: How large? A:"


def test_more_shots_than_training_problems_are_refused(make):
    with pytest.raises(ConfigError, match=r"prompt\.shots = 3 needs 4 training problems, but there are 3"):
        make(prompt={"shots": 3}).prompt("test", 0)


def test_in_a_conversation_the_question_is_the_users_turn(make):
    task = make(prompt={"chat": True, "system": "Be brief."})
    prompt = task.prompt("train", 1)
    assert prompt.messages == (Message("system", "Be brief."), Message("user", PAY["question"]))
    assert task.solution(prompt) == "12/60 = $0.2 a minute: $10.\n#### 10"


def test_the_number_is_what_counts(make):
    task = make()
    responses = ["It is 1080.00.\n#### 1080.0", "1,080", "#### 1081", ""]
    scores = task.score([task.prompt("test", 0)] * 4, responses)
    assert [(score.reward, score.correct, score.extracted) for score in scores] == [
        (1.0, True, "1080"),
        (1.0, True, "1080"),
        (0.0, False, "1081"),
        (0.0, False, None),
    ]
    assert "1081" in scores[2].why


@pytest.mark.parametrize("answer", [72, 72.0, "72", " 72.0 ", CLIPS["answer"], "recited #### 5, then\n#### 72"])
def test_an_answer_may_be_a_whole_solution(answer):
    task = make_task(TaskConfig(name="gsm8k"))  # whose data cannot be had here
    (score,) = task.score([task.problem_of({"answer": answer})], ["#### 72"])
    assert score.correct


@pytest.mark.parametrize("answer", [None, True, "", "####", "seven #### clips", float("nan"), ["72"]])
def test_an_answer_that_is_no_number_is_refused(answer):
    with pytest.raises(ConfigError, match="Gsm8k"):
        make_task(TaskConfig(name="gsm8k")).problem_of({"answer": answer})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "How many?", "solution": "#### 72"}, "has no column 'answer'"),
        ({"problem": "How many?", "answer": "#### 72"}, "has no column 'question'"),
        ({"question": None, "answer": "#### 72"}, "bad.jsonl: row 1: question is None, not a text"),
        ({"question": "How many?", "answer": "72 ####"}, "bad.jsonl: row 1: "),
        ({"question": "How many?", "answer": "many"}, "bad.jsonl: row 1: "),
    ],
)
def test_data_that_is_not_as_it_should_be_is_named(make, jsonl, row, message):
    task = make(train=jsonl(row, name="bad.jsonl"))
    with pytest.raises(ConfigError) as caught:
        task.prompt("train", 0)
    assert message in str(caught.value)


def test_a_task_is_cheap_to_make_and_its_mistakes_show_without_data():
    with pytest.raises(ConfigError, match=r"task\.options\.trian = .*did you mean 'train'"):
        make_task(TaskConfig(name="gsm8k", options={"trian": "x.jsonl"}))
    task = make_task(TaskConfig(name="gsm8k", options={"train": "none.jsonl"}))
    with pytest.raises(ConfigError, match=r"task\.options\.train: there is no file none\.jsonl"):
        task.size("train")
    with pytest.raises(ConfigError, match=r"cannot load 'openai/gsm8k' \(configuration 'main', split 'test'\)"):
        task.size("test")


def test_the_real_data(data_dir):
    options = {split: str(data_dir / f"gsm8k_{split}.jsonl") for split in ("train", "test")}
    task = make_task(TaskConfig(name="gsm8k", options=options))
    assert (task.size("train"), task.size("test")) == (7473, 1319)
    lines = (data_dir / "gsm8k_train.jsonl").read_text(encoding="utf-8").splitlines()
    for index in (0, 7472):
        row, prompt = json.loads(lines[index]), task.prompt("train", index)
        assert row["question"] in prompt.text
        assert row["answer"].endswith(f"#### {prompt.answer}")
    assert not any("<<" in task.solution(task.prompt("train", index)) for index in range(0, 7473, 50))
