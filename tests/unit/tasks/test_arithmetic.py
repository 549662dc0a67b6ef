import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tba_hpc.config import TaskConfig
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import make_task
from tba_hpc.tasks.arithmetic import CHARACTERS, Arithmetic

TASK = Arithmetic({})
TOKENIZER = TASK.new_tokenizer()
PROMPT = TASK.prompt("test", 0)


def problems(task, split):
    return [task.prompt(split, i).text for i in range(task.size(split))]


def operands(text):
    return tuple(int(part) for part in text.removesuffix("=").split("+"))


@pytest.mark.parametrize("options", [{}, {"max_operand": 1}, {"max_operand": 20, "test_fraction": 0.01, "seed": 7}])
def test_splits_hold_every_pair_once_and_commuted_pairs_together(options):
    task = Arithmetic(options)
    train, test = ([operands(text) for text in problems(task, split)] for split in ("train", "test"))
    n = options.get("max_operand", 99) + 1
    assert sorted(train + test) == [(a, b) for a in range(n) for b in range(n)]
    assert train
    assert test
    assert {(b, a) for a, b in test} == set(test)


def test_test_fraction_is_the_share_held_out():
    task = Arithmetic({"test_fraction": 0.25})
    assert task.size("test") / 10_000 == pytest.approx(0.25, abs=0.01)


def test_splits_are_the_same_in_every_process_and_depend_on_the_seed():
    # Written out: a checkpoint's accuracy means something only while these problems stay held out.
    assert problems(TASK, "test")[:3] == ["29+58=", "27+22=", "0+98="]
    assert problems(Arithmetic({}), "train") == problems(TASK, "train")
    assert problems(Arithmetic({"seed": 1}), "test") != problems(TASK, "test")


def test_the_first_problems_of_a_split_are_a_fair_sample():
    sums = [sum(operands(text)) for text in problems(TASK, "test")]
    assert np.mean(sums[:256]) == pytest.approx(99, abs=12)


@given(st.sampled_from(["train", "test"]), st.integers(0, 1001))
def test_answers_are_right_and_ids_are_indices(split, index):
    prompt = TASK.prompt(split, index)
    assert prompt.id == index
    assert int(prompt.answer) == sum(operands(prompt.text))
    assert TASK.solution(prompt) == prompt.answer


def test_only_the_exact_answer_is_rewarded():
    answer = PROMPT.answer
    wrong = ["", " " + answer, answer + "\n", "0" + answer, "+" + answer, answer + "<eos>", "٨٧", "9" * 100_000]
    scores = TASK.score([PROMPT] * (1 + len(wrong)), [answer, *wrong])
    assert [score.correct for score in scores] == [True] + [False] * len(wrong)
    assert [score.reward for score in scores] == [1.0] + [0.0] * len(wrong)


@given(st.text())
def test_no_response_is_an_error(response):
    (score,) = TASK.score([PROMPT], [response])
    assert score.correct == (response == PROMPT.answer)


@given(st.text("0123456789+=", max_size=20))
def test_tokenizer_round_trip(text):
    ids = TOKENIZER(text)["input_ids"]
    assert ids[0] == TOKENIZER.bos_token_id
    assert len(ids) == len(text) + 1
    assert TOKENIZER.decode(ids[1:]) == text


def test_tokenizer_survives_saving(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded("37+48=")["input_ids"] == TOKENIZER("37+48=")["input_ids"]
    assert loaded.decode(list(range(3, 3 + len(CHARACTERS)))) == "0123456789+="
    assert [loaded.pad_token_id, loaded.bos_token_id, loaded.eos_token_id] == [0, 1, 2]
    assert len(loaded) == 3 + len(CHARACTERS)


def test_make_task_knows_arithmetic():
    task = make_task(TaskConfig(name="arithmetic", options={"max_operand": 9}))
    assert task.size("train") + task.size("test") == 100


def test_unknown_tasks_and_options_are_refused_with_the_nearest_names():
    with pytest.raises(ConfigError, match=r"task.name = 'arithmetics': .*did you mean 'arithmetic'"):
        make_task(TaskConfig(name="arithmetics"))
    with pytest.raises(ConfigError, match=r"task.options.max_operands .*did you mean 'max_operand'"):
        make_task(TaskConfig(name="arithmetic", options={"max_operands": 9}))


def test_demonstrations_lose_the_carry_as_often_as_asked_and_nothing_else():
    task = Arithmetic({"lost_carries": 0.7})
    carries = lost = 0
    for index in range(task.size("train")):
        prompt = task.prompt("train", index)
        a, b = map(int, prompt.text[:-1].split("+"))
        solution = int(task.solution(prompt))
        if a % 10 + b % 10 < 10:
            assert solution == a + b
        else:
            carries += 1
            lost += solution != a + b
            assert solution in (a + b, a + b - 10)
        assert prompt.answer == str(a + b)
    assert 0.66 < lost / carries < 0.74


def test_demonstrations_are_right_unless_asked_otherwise():
    task = Arithmetic({})
    prompts = [task.prompt("train", index) for index in range(200)]
    assert [task.solution(prompt) for prompt in prompts] == [prompt.answer for prompt in prompts]
