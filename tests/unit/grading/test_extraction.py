"""Where the final answer stands."""

import time

import pytest

from tba_hpc.grading.extraction import (
    ANNOUNCED,
    BOXED,
    LAST_LINE,
    TAGGED,
    last_announced,
    last_box,
    last_line,
    last_marked,
    last_tagged,
    locate,
    spoken,
)


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
    [
        ("72", None),
        ("#### 72\nQ: 5", "72"),
        ("#### 1 then #### 2", "2"),
        ("####\n\n72", "72"),
        ("#### ", ""),
        ("#### Answer\n72", "72"),
        ("#### **Final Answer:**\n\n72", "72"),
        ("#### The answer is 72\nQ: 5", "72"),
        ("#### Answers vary\n72", None),
        ("#### Answer key\n72", None),
        ("#### Step 2: add\n72", None),
        ("#### **Step 2**\n72", None),
        ("#### 72\n#### Check\n3 x 24 is 72", "72"),
        ("#### not 72", "not 72"),
        ("#### minus 72\nQ: 5", "minus 72"),
        ("#### x = 72\nQ: 5", "x = 72"),
        ("#### US$72\nQ: 5", "US$72"),
    ],
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
        ("The answer is 72, since 3 boxes hold 24 each.", "72"),
        ("The answer is $x$ because", "$x$"),
        ("The answer is that when all is sold 72 are left", "that when all is sold 72 are left"),
    ],
)
def test_the_sentence_behind_the_announcement(text, rest):
    found = last_announced(text)
    assert (found and found.strip()) == (rest and rest.strip())


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("72", None),
        ("<answer>72</answer>", "72"),
        ("<ANSWER>72</Answer>", "72"),
        ("<answer>72\n3", "72\n3"),
        ("<answer></answer>", ""),
        ("72</answer>", None),
    ],
)
def test_the_last_answer_tag(text, content):
    assert last_tagged(text) == content


@pytest.mark.parametrize(
    ("text", "said"),
    [("72", "72"), ("<think>5</think>72", "72"), ("5</think>72", "72"), ("<think>72", ""), ("a<think>b", "a")],
)
def test_thoughts_are_not_said(text, said):
    assert spoken(text) == said


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ((BOXED, TAGGED), (BOXED, "3")),
        ((TAGGED, BOXED), (TAGGED, "4")),
        ((ANNOUNCED, LAST_LINE), (LAST_LINE, "5")),
        ((ANNOUNCED,), None),
    ],
)
def test_the_first_of_a_graders_places_counts(places, found):
    assert locate(r"<think>The answer is 2</think>\boxed{3} <answer>4</answer>" + "\n5\n", places) == found


PIECES = [r"\boxed{", "{", "####", "answer is ", "<answer>", "<think>", "\\", "}", "#", "#### ab ", "#### ab\n"]


@pytest.mark.parametrize("piece", PIECES)
def test_long_responses_take_no_longer_than_their_length(piece):
    started, text = time.process_time(), piece * 20_000 + "\nx"
    for find in (last_box, last_marked, last_announced, last_tagged, last_line, spoken):
        find(text)
    assert time.process_time() - started < 1
