"""Answers that are one number, with equations, brackets, reasons, remarks or headings around them: what may be left
out, and what may not since it may hold a second answer."""

import time

import pytest

from tba_hpc.grading.gsm8k import grade_number

RIGHT = [
    # equations
    (r"\boxed{x = 14}", "14"),
    (r"\boxed{48/2 = 24}", "24"),
    ("#### total = 3 + 5 = 8", "8"),
    ("#### 3 x 24 = 72", "72"),
    ("#### 6 dozen = 72", "72"),
    ("#### 2 hours = 120 minutes", "120"),
    # brackets
    ("#### [72]", "72"),
    (r"\boxed{[72]}", "72"),
    ("The answer is [ 72 ].", "72"),
    ("#### x = [72]", "72"),
    # remarks in parentheses
    ("#### 72 (3 x 24)", "72"),
    ("#### 72 (24 * 3)", "72"),
    ("#### 72 (24 × 3 = 72).", "72"),
    ("#### 72 (1.5*48)", "72"),
    ("#### 1,080 (2 * 540)", "1080"),
    ("#### The total is 72 (3 x 24)", "72"),
    ("#### 48 + 24 = 72 (clips)", "72"),
    ("#### 72 (24 in each of (only) 3 boxes)", "72"),
    ("#### 0.5 (1/2)", "0.5"),
    ("#### minus 72 (a loss)", "-72"),
    ("Answer: 72 (because 3 x 24)", "72"),
    ("72 (3 x 24)", "72"),
    ("There are 3 boxes. So she sold 72 clips in all (3 x 24).", "72"),
    # reasons
    ("The answer is 72 because she has 3 boxes of 24", "72"),
    ("The answer is 72, since 3 boxes hold 24 each.", "72"),
    ("The answer is 72, which is 3*24.", "72"),
    ("The answer is $72 as 3 boxes cost $24", "72"),
    ("Answer: 72 when all 3 boxes are full", "72"),
    ("The answer is 72 where 24 are in a box", "72"),
    ("The answer is 72 after 3 days", "72"),
    ("The answer is 72, so she is happy", "72"),
    ("**The answer is 72, because she has 3 boxes.**", "72"),
    ("The answer is that after selling them she has 72.", "72"),
    ("The answer is as follows: 72", "72"),
    # headings
    ("#### Step 1: add\n5 + 13 = 18\n#### Step 2: check\nSo it is \\boxed{18}.", "18"),
    ("#### Step 2: add\n5 + 13 is 18.", "18"),
    ("#### **Conclusion**\nThe answer is 18.", "18"),
    ("#### 18\n#### Explanation\n5 + 13", "18"),
    ("#### Answer: 18\nQ: 5", "18"),
    ("#### The answer is 18\nQ: 5", "18"),
    ("#### Answer\n72", "72"),
    ("#### **Answer:**\n72", "72"),
    ("#### Total 72", "72"),
    # multipliers
    ("#### 5 hundred thousand", "500000"),
    ("#### 5 hundred thousand people", "500000"),
    ("#### $2 hundred million", "200000000"),
    ("It is 2 hundred million.", "200000000"),
    # tags
    ("<ANSWER>72</ANSWER> or 73", "72"),
    ("<answer>72", "72"),
    ("72</answer>", "72"),
]
WRONG = [
    # equations about something else
    (r"\boxed{2x=14}", "14"),
    (r"\boxed{2x+3=14}", "14"),
    (r"\boxed{2 \cdot x = 14}", "14"),
    ("#### so 2x = 14", "14"),
    ("#### 5 = 7", "7"),
    ("#### 72 = 2x", "72"),
    (r"\boxed{14 = 2x}", "14"),
    # brackets around more
    ("#### [72, 73]", "72"),
    ("#### [72 or 73]", "72"),
    ("#### [72] [73]", "72"),
    ("#### [72] [73]", "73"),
    ("#### [72", "72"),
    ("#### 7[2]", "72"),
    # parentheses that may hold an answer
    ("#### 72 (73)", "72"),
    ("#### 72 (73)", "73"),
    ("72 (73)", "72"),
    ("72 (3 x 25)", "72"),
    ("#### 72 (-73)", "72"),
    ("#### 72 (= 73)", "72"),
    ("#### 72 (146/2)", "72"),
    ("#### 72 (146/2)", "73"),
    ("#### 72 (73.0 * 1)", "72"),
    ("#### 72 (3 x 24 = 73)", "72"),
    ("#### 72 (71-73)", "72"),
    ("#### 72 (73 clips)", "72"),
    ("#### 72 (or 73)", "72"),
    ("#### 72 (maybe it is 73)", "72"),
    ("#### 72 (no, 73)", "72"),
    ("#### 72 (or seventy-three)", "72"),
    ("#### 72 (3 x 24), 73 (a guess)", "72"),
    ("#### 72 (3 x 24), 73 (a guess)", "73"),
    ("#### 70 + 2 (the sum)", "72"),
    # several
    *((f"The answer is {text}", answer) for text in ("72 or 73", "72 and 73", "72, 73") for answer in ("72", "73")),
    *((f"The answer is {text}", answer) for text in ("between 72 and 80", "72 to 80") for answer in ("72", "80")),
    ("It is 72 or 73.", "72"),
    ("It is 72 or 73.", "73"),
    ("It is 72 clips, or maybe 73.", "73"),
    ("The answer is 72 when it rains, or 73", "72"),
    ("The answer is 72 when it rains and 73 when it snows", "72"),
    ("The answer is 72, where 73 is possible", "72"),
    ("The answer is 72 because 3 x 24, otherwise 73", "72"),
    ("The answer is 72 and after that 73", "72"),
    ("The answer is 72 or, since she lost one, 73", "72"),
    ("The answer is 72 as well as 73", "72"),
    ("The answer is 72 as is 73", "72"),
    ("The answer is 72, so 73", "72"),
    ("The answer is 72, so 73", "73"),
    ("The answer is 3 times as many as 24, which is 72", "3"),
    ("The answer is between 72 and 80 because it is large", "72"),
    ("The answer is 70 because 72 is too large", "72"),
    # headings
    ("#### not 72", "72"),
    ("#### Step 2: 72 or 73\n", "72"),
    ("#### Step 2: add\n#### 73\n\\boxed{72}", "72"),
    ("#### Step 72\n\\boxed{73}", "72"),
    ("#### Answer\n73\n\\boxed{72}", "73"),
    # multipliers
    ("#### 5 hundred thousand", "500"),
    ("#### 5 hundred thousand", "5000"),
    ("#### 5 hundred or thousand", "500"),
    # tags
    ("<answer>72 or 73", "72"),
    ("<answer>73\n\n72", "72"),
]


@pytest.mark.parametrize(("response", "answer"), RIGHT)
def test_right(response, answer):
    verdict = grade_number(response, answer)
    assert verdict.correct, verdict


@pytest.mark.parametrize(("response", "answer"), WRONG)
def test_wrong(response, answer):
    verdict = grade_number(response, answer)
    assert not verdict.correct, verdict


@pytest.mark.parametrize(
    "piece",
    ["9 because ", "when ", "as a", "as as ", "9 (", "9 (3 x ", ")", "= ", "2x=", "hundred ", "[9", "#### ab\n"],
)
def test_long_responses_take_no_longer_than_their_length(piece):
    started = time.process_time()
    for length in (990, 1990, 100_000):
        for before in ("#### 9 ", "The answer is 9 ", "<answer>9 (", ""):
            grade_number(before + piece * (length // len(piece)) + ")", "72")
    assert time.process_time() - started < 3
