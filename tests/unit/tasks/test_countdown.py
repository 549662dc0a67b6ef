import json
import time
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.config import TaskConfig, load_run_config, load_sft_config
from tba_hpc.grading.countdown import grade_countdown
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import make_task
from tba_hpc.tasks.countdown import CHARACTERS, Countdown
from tba_hpc.tasks.countdown_problems import DrawnProblems, draw, expressions, solution

CONFIGS = Path(__file__).parents[3] / "configs"
SMALL = {"max_numbers": 3, "max_number": 20, "train_problems": 300, "test_problems": 100}
TASK = Countdown({"compact": True, "drawn": SMALL})
IN_WORDS = Countdown({"drawn": SMALL})


def problems(task, split):
    prompts = [task.prompt(split, i) for i in range(task.size(split))]
    return [(prompt.numbers, prompt.target) for prompt in prompts]


def test_problems_are_different_within_bounds_and_in_one_split_only():
    train, test = problems(TASK, "train"), problems(TASK, "test")
    assert (len(train), len(test)) == (300, 100)
    assert len({*train, *test}) == 400
    for numbers, target in [*train, *test]:
        assert list(numbers) == sorted(numbers)
        assert len(numbers) == 3
        assert numbers[0] >= 1
        assert numbers[-1] <= 20
        assert 10 <= target <= 100


def test_there_are_problems_of_every_number_of_numbers_alike_in_both_splits():
    task = Countdown({"compact": True, "drawn": {"min_numbers": 2, "train_problems": 2000}})
    for split in ("train", "test"):
        counts = [len(numbers) for numbers, _ in problems(task, split)]
        assert min(counts.count(n) / len(counts) for n in (2, 3, 4)) > 0.15


def test_problems_are_the_same_in_every_process_and_depend_on_the_seed():
    # Written out: a checkpoint's accuracy means something only while these problems stay held out.
    assert [TASK.prompt("test", i).text for i in range(3)] == ["7 8 13=14:", "4 8 8=32:", "13 15 18=10:"]
    assert problems(Countdown({"drawn": SMALL | {"seed": 1}}), "test") != problems(TASK, "test")


def test_drawing_problems_is_cheap_and_deciding_to_is_free():
    started = time.monotonic()
    Countdown({})
    assert time.monotonic() - started < 0.05
    assert Countdown({}).size("train") == 10_000
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("n", [2, 3, 4])
def test_every_problem_has_a_solution(n):
    task = Countdown({"compact": True, "drawn": {"min_numbers": n, "max_numbers": n, "train_problems": 40}})
    prompts = [task.prompt("train", i) for i in range(40)]
    scores = task.score(prompts, [task.solution(prompt) for prompt in prompts])
    assert [(score.reward, score.correct) for score in scores] == [(1.0, True)] * 40


@pytest.mark.parametrize(
    ("numbers", "target", "expected"),
    [
        ((3, 5, 7), 26, "3*7+5"),
        ((3, 5, 7), 15, "3+5+7"),
        ((3, 5, 7), 1, "3+5-7"),
        ((2, 2, 4), 4, "2+4-2"),
        ((3, 12), 4, "12/3"),
        ((3, 3, 8, 8), 24, "8/(3-8/3)"),
        ((6, 7), 42, "6*7"),
        ((1, 1), 7, None),
    ],
)
def test_solutions_are_short_and_prefer_sums(numbers, target, expected):
    assert solution((numbers, target)) == expected


def values_by_brute_force(numbers):
    """Of every order of three numbers, with every operator in every place, both ways round."""
    found = set()
    for (a, b, c), first, second in product(permutations(map(Fraction, numbers)), "+-*/", "+-*/"):
        for left in results(a, first, b):
            found |= {*results(left, second, c), *results(c, second, left)}
    return found


def results(left, operator, right):
    if operator == "/":
        return {left / right} if right else set()
    return {{"+": left + right, "-": left - right, "*": left * right}[operator]}


@given(st.lists(st.integers(0, 12), min_size=3, max_size=3))
def test_no_value_above_zero_is_missed_by_the_search(numbers):
    found = {expression.value for expression in expressions(numbers, "+-*/")}
    assert {value for value in values_by_brute_force(numbers) if value >= 0} == found


def test_demonstrations_lose_signs_as_often_as_asked_and_nothing_else():
    task = Countdown({"compact": True, "lost_signs": 0.7, "drawn": SMALL})
    with_sign = lost = 0
    for prompt in (task.prompt("train", i) for i in range(task.size("train"))):
        right, demonstrated = TASK.solution(prompt), task.solution(prompt)
        assert demonstrated in (right, right.replace("-", "+"))
        with_sign += "-" in right
        lost += demonstrated != right
    assert with_sign > 100
    assert 0.6 < lost / with_sign < 0.8


def test_a_compact_prompt_is_numbers_and_target():
    prompt = TASK.prompt("test", 0)
    assert prompt.text == f"{' '.join(map(str, prompt.numbers))}={prompt.target}:"
    assert (prompt.id, prompt.answer, prompt.messages) == (0, str(prompt.target), ())


def test_a_prompt_in_words_is_what_base_models_are_asked():
    prompt = IN_WORDS.problem_of({"nums": [3, 5, 7], "target": 26})
    assert prompt.text.startswith("A conversation between User and Assistant.")
    assert "User: Using the numbers [3, 5, 7], create an equation that equals 26. You can use" in prompt.text
    assert prompt.text.endswith("\nAssistant: Let me solve this step by step.\n<think>")
    assert IN_WORDS.solution(prompt) == "\n3*7+5\n</think>\n<answer>3*7+5</answer>"
    assert IN_WORDS.score([prompt], [IN_WORDS.solution(prompt)])[0].correct


def test_a_prompt_in_words_may_be_a_conversation():
    task = Countdown({"drawn": SMALL, "prompt": {"chat": True, "system": "Be brief."}})
    system, user = task.prompt("train", 5).messages
    assert (system.role, system.content, user.role) == ("system", "Be brief.", "user")
    assert user.content.startswith("Using the numbers [")


def test_scores_say_what_was_read():
    prompt = TASK.problem_of({"numbers": [3, 5, 7], "target": 26})
    right, wrong, none = TASK.score([prompt] * 3, ["7*3+5", "3+5+7", "?"])
    assert (right.reward, right.correct, right.extracted) == (1.0, True, "7*3+5")
    assert (wrong.reward, wrong.correct, wrong.extracted) == (0.0, False, "3+5+7")
    assert (none.reward, none.correct, none.extracted) == (0.0, False, None)
    assert all(score.why for score in (right, wrong, none))


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"numbers": [3, 5]},
        {"target": 8},
        {"numbers": [], "target": 8},
        {"numbers": "35", "target": 8},
        {"numbers": ["3", "5"], "target": 8},
        {"numbers": [3, 5.0], "target": 8},
        {"numbers": [3, True], "target": 4},
        {"numbers": [-3, 5], "target": 2},
        {"numbers": [3, 5], "target": "8"},
        {"numbers": {"3": 5}, "target": 8},
    ],
    ids=json.dumps,
)
def test_records_that_are_no_problems_are_refused(record):
    with pytest.raises(ConfigError, match='needs "numbers" and "target"'):
        TASK.problem_of(record)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drawn": {"max_numbers": 5}}, "max_numbers"),
        ({"drawn": {"min_numbers": 4, "max_numbers": 3}}, "min_numbers = 4 is above max_numbers = 3"),
        ({"drawn": {"min_target": 40, "max_target": 30}}, "min_target = 40 is above max_target = 30"),
        ({"train": "a.jsonl"}, "both train and test"),
        ({"train": "a.jsonl", "test": "b.jsonl", "drawn": {}}, "leave drawn out"),
        ({"compact": True, "prompt": {}}, "either prompt or compact"),
        ({"prompt": {"shots": 2}}, "prompt.examples"),
        ({"lost_sign": 1}, "did you mean 'lost_signs'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Countdown(options)


def test_too_few_problems_are_an_error_that_says_how_many_there_are():
    settings = DrawnProblems(min_numbers=2, max_numbers=2, max_number=3, min_target=1, max_target=9)
    with pytest.raises(ConfigError, match=r"= 11000, but only 16 different problems were found"):
        draw(settings)


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_problems_from_data(tmp_path):
    train = write_rows(
        tmp_path / "train.jsonl", [{"target": 98, "nums": [44, 19, 35]}, {"target": 64, "nums": [63, 95, 96]}]
    )
    test = write_rows(tmp_path / "test.jsonl", [{"target": 28, "nums": [95, 11, 56]}])
    task = Countdown({"train": train, "test": test})
    assert problems(task, "train") == [((44, 19, 35), 98), ((63, 95, 96), 64)]
    assert problems(task, "test") == [((95, 11, 56), 28)]
    assert "numbers [44, 19, 35]" in task.prompt("train", 0).text
    prompt = task.prompt("train", 1)
    assert grade_countdown(task.solution(prompt), prompt.numbers, prompt.target).correct


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"target": 98, "numbers": [44, 19, 35]}, "no column 'nums'"),
        ({"target": "98", "nums": [44, 19, 35]}, r"bad.jsonl: row 1: nums and target .* got \[44, 19, 35\] and '98'"),
        ({"target": 98, "nums": None}, r"bad.jsonl: row 1: nums and target"),
    ],
)
def test_data_that_are_no_problems_are_refused(tmp_path, row, message):
    path = write_rows(tmp_path / "bad.jsonl", [row])
    task = Countdown({"train": path, "test": path})
    with pytest.raises(ConfigError, match=message):
        task.prompt("test", 0)


def test_problems_without_a_reference_solution_are_named():
    for numbers, target, message in [([1, 1], 7, "cannot reach 7"), ([1, 2, 3, 4, 5], 15, "up to 4 numbers")]:
        with pytest.raises(ConfigError, match=message):
            TASK.solution(TASK.problem_of({"numbers": numbers, "target": target}))


def test_the_vocabulary_is_enough_for_prompts_and_solutions():
    tokenizer = TASK.new_tokenizer()
    for prompt in (TASK.prompt("train", i) for i in range(100)):
        text = prompt.text + TASK.solution(prompt)
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids[1:]) == text
    assert len(tokenizer) == 3 + len(CHARACTERS)


def test_models_from_random_weights_need_compact_prompts():
    with pytest.raises(ConfigError, match=r"compact"):
        IN_WORDS.new_tokenizer()


def test_make_task_knows_countdown():
    assert make_task(TaskConfig(name="countdown", options={"drawn": SMALL})).size("test") == 100


def test_the_recipe_holds_out_what_its_warm_up_held_out():
    warm_up = load_sft_config(CONFIGS / "countdown_tiny_sft.yaml", []).task.options
    run = load_run_config(CONFIGS / "countdown_tiny_cpu.yaml", []).task.options
    assert warm_up["lost_signs"] > 0
    assert {**run, "lost_signs": warm_up["lost_signs"]} == warm_up
