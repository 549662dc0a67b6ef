from typing import Annotated

import pytest

from tba_hpc.settings import ConfigError, Settings, validate
from tba_hpc.tasks.prompt_format import Example, PromptFormat, default_format
from tba_hpc.trajectory import Message

PLAIN = PromptFormat(template="Q: {question}\nA:", response=" {solution}")
CHAT = PromptFormat(chat=True, system="Put it within \\boxed{}.")
ONE, TWO = Example(question="1+1?", solution="2"), Example(question="2+2?", solution="4")


class PlainOptions(Settings):
    prompt: Annotated[PromptFormat, default_format(PLAIN)] = PLAIN


class ChatOptions(Settings):
    prompt: Annotated[PromptFormat, default_format(CHAT)] = CHAT


def formatted(format, shots=()):
    return format.prompt(7, "3+3?", "6", shots)


def test_a_plain_prompt_is_its_template_with_the_question():
    prompt = formatted(PLAIN)
    assert (prompt.id, prompt.text, prompt.answer, prompt.messages) == (7, "Q: 3+3?\nA:", "6", ())
    assert PLAIN.wrapped("6") == " 6"


def test_examples_stand_before_the_question_as_their_responses_are_learned():
    format = PLAIN.model_copy(update={"examples": (ONE,), "separator": "\n--\n"})
    assert formatted(format, [TWO]).text == "Q: 1+1?\nA: 2\n--\nQ: 2+2?\nA: 4\n--\nQ: 3+3?\nA:"


def test_a_conversation_has_its_system_message_then_examples_then_the_question():
    format = CHAT.model_copy(update={"template": "<{question}>", "response": "[{solution}]", "examples": (ONE,)})
    prompt = formatted(format, [TWO])
    assert prompt.text == "<3+3?>"
    assert prompt.messages == (
        Message("system", "Put it within \\boxed{}."),
        *(Message("user", "<1+1?>"), Message("assistant", "[2]")),
        *(Message("user", "<2+2?>"), Message("assistant", "[4]")),
        Message("user", "<3+3?>"),
    )
    assert formatted(PromptFormat(chat=True)).messages == (Message("user", "3+3?"),)


@pytest.mark.parametrize(
    "question", ["\\frac{1}{2} and {question} and {solution}", "{}", "{0}", "%s $1 \\1 \\g<0>", "{{x}}"]
)
def test_braces_and_placeholders_in_a_question_stay_as_they_are(question):
    format = PromptFormat(
        template="In \\boxed{} {x}: {question}.", examples=(Example(question=question, solution="{"),)
    )
    once = f"In \\boxed{{}} {{x}}: {question}."
    assert format.prompt(0, question, "1").text == f"{once}{{\n\n{once}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"template": "Problem: {quest}"}, "options.prompt.template = 'Problem: {quest}': {question} is missing"),
        ({"response": "Answer"}, "options.prompt.response = 'Answer': {solution} is missing"),
        ({"system": "Be brief."}, "options.prompt.system = 'Be brief.': only conversations have a system message"),
        ({"shots": -1}, "options.prompt.shots = -1: Input should be greater than or equal to 0"),
        ({"shots": True}, "options.prompt.shots = True: Input should be a valid integer"),
        (
            {"shots": 1, "examples": [{"question": "1+1?", "solution": "2"}]},
            "options.prompt.shots = 1: there are examples, too: give one of them",
        ),
        (
            {"tempalte": "{question}"},
            "options.prompt.tempalte = '{question}': no such setting; did you mean 'template'",
        ),
        ({"examples": [{"question": "1+1?"}]}, "options.prompt.examples.0.solution is missing"),
        ("{question}", "options.prompt = '{question}': Input should be a valid dictionary"),
    ],
)
def test_mistakes_name_the_setting(values, message):
    with pytest.raises(ConfigError) as caught:
        validate(PlainOptions, {"prompt": values}, "options", "options.")
    assert message in str(caught.value)


def test_what_is_left_out_is_taken_from_the_tasks_own_format():
    def prompt(model, **values):
        return validate(model, {"prompt": values}, "options").prompt

    assert prompt(PlainOptions) == PLAIN
    assert prompt(PlainOptions, shots=3) == PLAIN.model_copy(update={"shots": 3})
    assert prompt(PlainOptions, chat=False, response="{solution}!").template == PLAIN.template
    assert prompt(ChatOptions, template="Problem: {question}").system == CHAT.system
    assert prompt(ChatOptions, system=None).system is None


def test_a_plain_prompt_has_none_of_the_words_of_a_conversation_nor_the_other_way_round():
    assert validate(PlainOptions, {"prompt": {"chat": True}}, "options").prompt == PromptFormat(chat=True)
    assert validate(ChatOptions, {"prompt": {"chat": False}}, "options").prompt == PromptFormat()
