"""Where the final answer stands."""

import time

import pytest

from tba_hpc.grading.extraction import last_announced, last_box, last_marked, last_tagged, spoken


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("72", None),
        (r"\boxed{72}", "72"),
        (r"\boxed {72}", "72"),
        (r"\fbox{72}", "72"),
        (r"\boxed{}", ""),
        (r"\boxed{3}, no, \boxed{4}, as 2+2=5", "4"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\frac{\boxed{1}}{2}}", r"\frac{\boxed{1}}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\left\{1\right.}", r"\left\{1\right."),
        (r"} {\boxed{4}", "4"),
        (r"\boxed{4", ""),
        (r"\boxed{\frac{1}{2}", ""),
        (r"\boxed{3} and \boxed{4", ""),
        (r"\boxed{3 and \boxed{4}", "4"),
    ],
)
def test_the_last_box(text, content):
    assert last_box(text) == content


@pytest.mark.parametrize(
    ("text", "line"),
    [("72", None), ("#### 72\nQ: 5", "72"), ("#### 1 then #### 2", "2"), ("####\n\n72", "72"), ("#### ", "")],
)
def test_the_line_behind_the_last_mark(text, line):
    assert last_marked(text) == line


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("72", None),
        ("The answer is 72. Next", " 72"),
        ("Answer: 1.5\nmore", "1.5"),
        ("**Final Answer:** 72", "72"),
        ("the answer is 3, no, the answer is 4", "4"),
        ("Answer:\n\n72", "72"),
        ("many answers isolated", None),
    ],
)
def test_the_sentence_behind_the_announcement(text, rest):
    found = last_announced(text)
    assert (found and found.strip()) == (rest and rest.strip())


@pytest.mark.parametrize(
    ("text", "content"), [("72", None), ("<answer>72</answer>", "72"), ("<answer>72", "72"), ("<answer></answer>", "")]
)
def test_the_last_answer_tag(text, content):
    assert last_tagged(text) == content


@pytest.mark.parametrize(
    ("text", "said"),
    [("72", "72"), ("<think>5</think>72", "72"), ("5</think>72", "72"), ("<think>72", ""), ("a<think>b", "a")],
)
def test_thoughts_are_not_said(text, said):
    assert spoken(text) == said


@pytest.mark.parametrize("piece", [r"\boxed{", "{", "####", "answer is ", "<answer>", "<think>", "\\", "}"])
def test_long_responses_take_no_longer_than_their_length(piece):
    started, text = time.perf_counter(), piece * 20_000
    for find in (last_box, last_marked, last_announced, last_tagged, spoken):
        find(text)
    assert time.perf_counter() - started < 1
