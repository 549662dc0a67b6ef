import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.grading.countdown import grade_countdown

NUMBERS, TARGET = (3, 5, 7), 26

RIGHT = [
    "3*7+5",
    "5 + 7 * 3",
    "(3*7)+5 = 26",
    "3*7+5=21+5=26",
    "3 × 7 + 5 ＝ 26",
    "Let me think: 3*5=15.\nNo.\n\n3*7+5\n\n",
    "<answer>3*7+5</answer>",
    "<answer> 3*7+5 = 26 </answer> I hope so.",
    "<answer>3+5+7</answer> no, <answer>3*7+5</answer>",
    "3+5+7</think>\n3*7+5",
    "<think><answer>1</answer></think><answer>\n3*7+5\n</answer>",
    r"It is \boxed{3 \times 7 + 5}.",
    r"<answer>\boxed{3*7+5}</answer>",
    r"\boxed{3+5+7}, or rather $\boxed{\left(3 \cdot 7\right) + 5}$",
    r"$\boxed{3 \cdot 7 + 5}$",
    "Answer: 3*7+5",
    "Final Answer: 3*7+5",
    "**Final answer: 3*7+5 = 26.**",
    "The solution is: `3*7+5`.",
    "$$3*7+5$$",
    r"\[3 \times 7 + 5 = 26\]",
    r"\(5+3\cdot 7\)",
    "-(-3*7)+5",
    "3*7+5 = 13*2",
    "3 x 7 + 5",
    "3 X 7+5",
    "3x7+5",
    "[3*7]+5",
    r"\{3*7\}+5",
    r"\boxed{\{3 \times 7\} + 5}",
    "3*7+5;",
    "3*7+5,",
    "<ANSWER>3*7+5</ANSWER> I hope so.",
    "<Answer>3*7+5</answer>",
    "<answer>3*7+5",
    "3+5+7 <answer>\n3*7+5\n",
    "<answer>3+5+7</answer> no, <answer>3*7+5",
    "The answer is 3*7+5",
    "**The answer is `3*7+5`.**",
    "The answer is 3*7+5, since 3+5+7 is too small.",
    "Answer: 3*7+5\n\nIt uses each number once.",
    "The solution is 3*7+5",
    "<answer>The answer is 3*7+5</answer>",
    "**The answer is 3*7+5**.",
    "Answer:\n$$\n3*7+5\n$$",
    "<answer>\n```\n3*7+5\n```\n</answer>",
    "Answer: 3*7+5\nThe answer is correct: each number is used once.",
    "**Solution:** 3*7+5",
    "**Solution**: 3*7+5",
    "**Solution: 3*7+5**",
    "3*7+5 == 26",
    "`3*7+5` = 26",
    "3*7+5 = **26**",
    "So:\n- 3*7+5",
    "```\n3*7+5\n```",
    "3*7+5<|im_end|>\nx",
    "Answer:\n- 3*7+5",
]

WRONG = {
    "marks around another": [
        "<answer>3*7+5</x>+1</answer>",
        "3*7+5 === 26",
        "3*7+5 == 27",
        "`3*7+5` = 27",
        "**Solution:** 3*5+7",
        "--3*7+5",
        "<answer>\n```\n3+5+7\n```\n</answer>",
        "`3*7`+5 = 26 = `27`",
    ],
    "no answer": [
        "",
        " \n\t",
        "<answer></answer>",
        "<answer> </answer>",
        "3*7+5 <answer></answer>",
        r"\boxed{}",
        "****",
    ],
    "other worth": ["3+5+7", "3*5+7 = 26", "3*5+7", "7-5-3"],
    "other sum claimed": ["3*7+5 = 27", "3*7+5 = 27 = 26", "3*7+5 = x", "3*7+5 =", "= 26", "26 = 3*7+5"],
    "other numbers": ["26", "3*7+5+0", "21+5", "(3*7+5)*7/7", "3*7", "13*2", "3*7+5*1", "37-11", "3*7 + 5 + 5 - 5"],
    "not closed": [
        "<answer>3*7+5</answer> <answer>",
        "3*7+5 <answer>",
        "<answer>3*7+5 is my answer",
        r"\boxed{3*7+5",
        "3*7+5 \\boxed",
    ],
    "thought only": ["3*7+5</think>", "<think>3*7+5", "<think><answer>3*7+5</answer></think>"],
    "not alone": ["3*7+5 works", "so 3*7+5", "3*7+5, I think", "3*7+5\n</answer>", "3*7+5; 3*7+5", "3*7+5 + nothing"],
    "several": [
        "3*7+5 or 3+5+7",
        "The answer is 3*7+5 or 3+5+7",
        "The answer is 3*7+5, 3+5+7",
        "[3*7+5, 3+5+7]",
        "{3*7+5} {3+5+7}",
        "<answer>3*7+5, 3+5+7</answer>",
        "The answer is 3*7+5\nThe answer is 3+5+7",
        "<ANSWER>3+5+7</ANSWER> 3*7+5",
    ],
    "brackets": ["[3*7)+5", "(3*7]+5", "{3*7)+5", "[3*7+5", "3*7]+5"],
    "no factors beside it": ["x3*7+5", "3*7+5 x", "3 x x 7+5", "3 x 7 + x5"],
    "no arithmetic": ["3**7+5", "3*7+5.0", "0x3*7+5", "3_*7+5", "３²", "3*7+-(-5)", "3e0*7+5", "3//1*7+5", "three"],
}

HOSTILE = [
    "__import__('os').system('touch HERE')",
    "open('HERE', 'w')",
    "().__class__.__bases__[0].__subclasses__()",
    "9**9**9**9",
    "(" * 10**6 + "3*7+5" + ")" * 10**6,
    "3*7+5" + "+0" * 10**6,
    "9" * 10**6,
    "<answer>" * 10**5,
    "\\boxed{" * 10**5,
    "<answer>\\boxed{" * 10**5 + "}</answer>" * 10**5,
    "**" * 10**6,
    "Answer:" * 10**5,
    "\x00\ud800\u202e",
]


@pytest.mark.parametrize("response", RIGHT)
def test_right(response):
    verdict = grade_countdown(response, NUMBERS, TARGET)
    assert verdict.correct, verdict
    assert verdict.extracted is not None


@pytest.mark.parametrize("response", [response for kind in WRONG.values() for response in kind])
def test_wrong_for_a_reason(response):
    verdict = grade_countdown(response, NUMBERS, TARGET)
    assert not verdict.correct
    assert verdict.why


@pytest.mark.parametrize("response", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_hostile_text_is_wrong_quickly_and_does_nothing(response, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = time.process_time()
    assert not grade_countdown(response, NUMBERS, TARGET).correct
    assert time.process_time() - started < 0.5
    assert list(Path().iterdir()) == []
    assert grade_countdown("3*7+5", NUMBERS, TARGET).correct


@pytest.mark.parametrize(
    ("response", "extracted", "why"),
    [
        ("(5) + 3 * 7", "5+3*7", "is worth 26"),
        ("3+5+7", "3+5+7", "is worth 15, not 26"),
        ("3/5+7", "3/5+7", "is worth 38/5, not 26"),
        ("3*7", "3*7", "uses 3, 7 where 3, 5, 7 are given"),
        ("3*7+5=27", "3*7+5", "says it is worth 27; it is worth 26"),
        ("[5] + 3 x 7", "5+3*7", "is worth 26"),
        ("<answer>", None, "no answer"),
        ("", None, "no answer"),
    ],
)
def test_what_was_read_and_why(response, extracted, why):
    verdict = grade_countdown(response, NUMBERS, TARGET)
    assert (verdict.extracted, verdict.why) == (extracted, why)


@pytest.mark.parametrize(
    ("numbers", "response", "correct"),
    [
        ((7, 7), "7+7", True),
        ((7, 7), "7*2", False),
        ((7, 7, 1), "7+7", False),
        ((7,), "7+7", False),
        ((1, 3), "13+1", False),
        ((13, 1), "13+1", True),
        ((14,), "14", True),
        ((14,), "14=14", True),
    ],
)
def test_numbers_are_used_exactly_as_often_as_given(numbers, response, correct):
    assert grade_countdown(response, numbers, 14).correct == correct


def test_fractions_on_the_way_are_exact():
    assert grade_countdown("8/(3-8/3)", (8, 8, 3, 3), 24).correct
    assert not grade_countdown("333333333/999999999*3", (333333333, 999999999, 3), 0).correct


@given(st.text() | st.text("0123456789+-*/()=<>{}\\answerboxed\n", max_size=60))
def test_no_response_is_an_error(response):
    verdict = grade_countdown(response, NUMBERS, TARGET)
    assert verdict.why
    assert not verdict.correct or verdict.extracted
