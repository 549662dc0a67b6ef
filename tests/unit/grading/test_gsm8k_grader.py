"""Answers that are one number: every kind that the package's docstring has a policy for."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tba_hpc.grading.gsm8k import grade_number
from tba_hpc.settings import ConfigError

RIGHT = [
    # where the answer stands
    ("48/2 = <<48/2=24>>24\n48+24 = <<48+24=72>>72\n#### 72", "72"),
    ("####72", "72"),
    ("##### 72", "72"),
    ("####\n72", "72"),
    ("#### 72\n\nQuestion: Ann has 5 apples.", "72"),
    ("The format is #### 5.\nSo it is\n#### 72", "72"),
    ("#### 72" + "\nfiller" * 1000, "72"),
    ("So 72, altogether.", "72"),
    ("She sold 72 clips.", "72"),
    ("48 + 24 = 72", "72"),
    ("Then x=72", "72"),
    ("it is 20 + 52 = <<20+52=72>>72 clips", "72"),
    ("The area is 72 m^2.", "72"),
    ("5 hours pass. It is 72!", "72"),
    ("\\boxed{72}", "72"),
    ("5 \\boxed{72} 6", "72"),
    ("\\boxed{\\boxed{72}}", "72"),
    ("\\boxed{3} \\boxed{72}", "72"),
    ("**Final Answer:** 72", "72"),
    ("**Final Answer**: 72", "72"),
    ("Final Answer: The final answer is $72$. I hope it is correct.", "72"),
    ("The answer is 72. Q: Ann has 5", "72"),
    ("The answer is **72**.", "72"),
    ("The answer is that she has 72 clips.", "72"),
    ("<answer>72</answer> I checked 3 times.", "72"),
    ("<think>5 or 6</think>72", "72"),
    ("**Final Answer: 72**", "72"),
    ("**Answer: 72**", "72"),
    ("**The answer is 72.**", "72"),
    ("*Answer: 72*", "72"),
    ("__Final Answer: 72__", "72"),
    ("**#### 72**", "72"),
    ("#### **72** clips", "72"),
    ("**Final Answer**\n\n72", "72"),
    ("#### 72</s>", "72"),
    ("It is 72<|im_end|>", "72"),
    ("Answer: 72<|im_end|>\n<|endoftext|>", "72"),
    ("so $\\boxed 72$", "72"),
    ("#### 72?", "72"),
    ('#### "72"', "72"),
    ("#### `72`", "72"),
    ("#### 72 (seventy-two)", "72"),
    ("-$72", "-72"),
    ("so the loss is -$72.00.", "-72"),
    ("The balance changed by -$1,200.", "-1200"),
    ("#### minus 72", "-72"),
    ("#### negative 72", "-72"),
    # separators, currency, units, punctuation
    ("#### 1,080", "1080"),
    ("#### 1080", "1,080"),
    ("#### 1{,}080", "1080"),
    ("#### 1,\\!080", "1080"),
    ("#### 1\u202f080\u202f000", "1080000"),
    ("#### 1，080", "1080"),
    ("It costs $1,080.", "1080"),
    ("#### $72", "72"),
    ("#### \\$72", "72"),
    ("#### -$72", "-72"),
    ("#### US$72", "72"),
    ("#### €72", "72"),
    ("#### 72 €", "72"),
    ("#### 72%", "72"),
    ("#### 72\\%", "72"),
    ("#### 50 percent", "50"),
    ("#### 72 clips in April and May.", "72"),
    ("#### 72km", "72"),
    ("#### 6pm", "6"),
    ("#### 60 km/h", "60"),
    ("#### 72\\text{ clips}", "72"),
    ("#### 5 million", "5000000"),
    ("It is 5 million.", "5000000"),
    ("#### 72.", "72"),
    ("#### 72,", "72"),
    ("#### **72**", "72"),
    ("#### $\\mathbf{72}$", "72"),
    ("#### \\(72\\)", "72"),
    # characters
    ("#### -5", "-5"),
    ("#### - 5", "-5"),
    ("#### \u22125", "-5"),
    ("#### \u20135", "-5"),
    ("#### \uff0d５", "-5"),
    ("#### \u27965", "-5"),
    ("#### \u20115", "-5"),
    ("#### \ufe635", "-5"),
    ("#### ７２", "72"),
    ("#### ٧٢", "72"),
    ("#### ७२", "72"),
    ("#### 𝟕𝟐", "72"),
    ("#### 7\u200b2\ufeff", "72"),
    ("So, ７２。", "72"),
    # decimals, fractions, exponents
    ("#### 72.00", "72"),
    ("#### 0.5", "1/2"),
    ("#### .5", "0.50"),
    ("#### 1/2", "0.5"),
    ("#### ½", "0.5"),
    ("#### 3½", "3.5"),
    ("#### 3 1/2", "3.5"),
    ("That makes 3 1/2.", "3.5"),
    ("#### \\frac{7}{2}", "3.5"),
    ("#### 3\\frac12", "3.5"),
    ("so $\\frac{1}{2}$.", "0.5"),
    ("#### 0.\\overline{3}", "1/3"),
    ("#### 1e3", "1000"),
    ("#### 10^3", "1000"),
    ("#### 10³", "1000"),
    ("#### 1.5 × 10^3", "1500"),
]
WRONG = [
    ("72\n#### None", "72"),
    # words that make another number of it
    ("The answer is not 72.", "72"),
    ("The answer is half of 72", "72"),
    ("#### twice 72", "72"),
    ("#### less than 72", "72"),
    ("#### twenty 72", "72"),
    ("#### minus 72", "72"),
    ("#### 72 squared", "72"),
    ("#### 72 pi", "72"),
    ("#### 72 point five", "72"),
    ("#### 72 or six", "72"),
    ("#### 72 plus two", "72"),
    ("so the loss is -$72.00.", "72"),
    ("#### 72 clips were sold altogether in April & 3 in May", "75"),
    # empty
    ("", "0"),
    (" \n\t", "0"),
    ("<answer></answer>", "0"),
    ("<think></think>", "0"),
    ("<think>72</think>", "72"),
    ("<think>72", "72"),
    ("####", "0"),
    ("#### \n", "0"),
    ("\\boxed{}", "0"),
    ("72\n####", "72"),
    # unreadable, unclosed or not the last
    ("\\boxed{72", "72"),
    ("72 \\boxed{\\frac{1}{2}", "72"),
    ("#### 72\n#### 73", "72"),
    ("\\boxed{72} \\boxed{73}", "72"),
    ("#### 72 or 73", "72"),
    ("#### 72 or 73", "73"),
    ("#### 3x", "3"),
    ("#### seventy-two", "72"),
    ("#### 7 2", "72"),
    ("#### 1 080", "1080"),
    ("#### 10,80", "1080"),
    ("#### 72.5.3", "72"),
    ("#### 72:30", "72"),
    ("#### 2 and a half", "2"),
    ("#### 5 million", "5"),
    ("#### --72", "72"),
    ("#### ①", "1"),
    ("#### 20-30", "30"),
    ("it takes 20-30", "30"),
    # exact
    ("#### 72.0000001", "72"),
    ("#### 0.333333", "1/3"),
    ("#### 50%", "0.5"),
    ("#### 5", "-5"),
    ("#### 10²", "102"),
    ("#### 9007199254740993", "9007199254740992"),
    # hostile and costly
    ("#### 9**9**9", "9"),
    ("There are 9. 9**9**9", "9"),
    ("9^{9^9}", "9"),
    ("#### 9^{9^9}", "9"),
    ("#### 1e999999999", "1"),
    ("#### 0x10", "16"),
    ("#### 0x10", "0"),
    ("0x10", "10"),
    ("#### 1_0", "10"),
    ("1_0", "10"),
    ("#### 0b1", "1"),
    ("#### 70+2", "72"),
    ("#### int('72')", "72"),
    ("#### __import__('os').system('echo 72')", "72"),
    ("__import__('os').system('echo 72')", "72"),
    ("import os; os._exit(72)", "72"),
    ("#### 72 .__class__", "72"),
    ("#### 72;import os", "72"),
    ("#### [72][0]", "72"),
    ("#### {72}", "72"),
    ("#### 72 if True else 5", "5"),
    ("print(72)", "72"),
]


@pytest.mark.parametrize(("response", "answer"), RIGHT)
def test_right(response, answer):
    verdict = grade_number(response, answer)
    assert verdict.correct, verdict
    assert verdict.extracted == grade_number(answer, answer).extracted


@pytest.mark.parametrize(("response", "answer"), WRONG)
def test_wrong(response, answer):
    assert not grade_number(response, answer).correct
    assert grade_number("#### 72", "72").correct


@pytest.mark.parametrize(
    ("response", "extracted"),
    [("#### 1,080.0", "1080"), ("#### 2/4", "1/2"), ("#### 9**9", None), ("", None), ("so - 5", "5"), ("so -5", "-5")],
)
def test_equal_answers_have_one_spelling(response, extracted):
    assert grade_number(response, "72").extracted == extracted


@pytest.mark.parametrize(
    ("response", "why"),
    [
        ("#### 72", "72 behind ####"),
        ("#### 73", "73 behind #### is not 72"),
        ("\\boxed{", "no number in \\boxed"),
        ("none", "no number at the end"),
    ],
)
def test_why(response, why):
    assert grade_number(response, "72").why == why


@pytest.mark.parametrize("answer", ["", "seventy", "9**9"])
def test_an_answer_in_the_data_has_to_be_a_number(answer):
    with pytest.raises(ConfigError, match="is not a number; correct it in the data"):
        grade_number("#### 72", answer)


FRAGMENTS = r"#### \boxed{ { } \frac answer: <answer> ** 99999999999 ^ , − ½"
PIECES = st.sampled_from(FRAGMENTS.split())


@settings(max_examples=300, deadline=2000)
@given(st.one_of(st.text(), st.lists(st.one_of(PIECES, st.text(max_size=3))).map("".join)))
def test_no_text_is_an_error_or_takes_long(text):
    grade_number(text, "72")


@pytest.mark.parametrize(
    "piece", ["9", "9 ", "9,", "#### ", "\\boxed{", "\\frac", "*", "a ", "é", "½", "$", "1/", "<", "1 a"]
)
def test_long_responses_take_no_longer_than_their_length(piece):
    started = time.process_time()
    grade_number(piece * 100_000, "72")
    grade_number("#### " + piece * 100_000, "72")
    assert time.process_time() - started < 3


def test_words_behind_a_number_take_no_longer_than_their_length():
    started = time.process_time()
    for tail in ("a" * 990 + "+", "a " * 490 + "+", "was sold in April & " * 40):
        grade_number(f"#### 5 {tail}", "5")
    assert time.process_time() - started < 2
