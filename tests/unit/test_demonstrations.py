import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tba_hpc.demonstrations import demonstrations
from tba_hpc.settings import ConfigError
from tba_hpc.tasks.arithmetic import Arithmetic

TASK = Arithmetic({"max_operand": 12})
TOKENIZER = TASK.new_tokenizer()
PROMPTS = [TASK.prompt("train", i) for i in range(TASK.size("train"))]


def texts(batch):
    return [
        TOKENIZER.decode(trajectory.prompt_tokens.tolist() + trajectory.response_tokens.tolist())
        for trajectory in batch
    ]


def expected(prompts):
    return [f"<bos>{prompt.text}{prompt.answer}<eos>" for prompt in prompts]


def test_every_training_problem_comes_with_its_solution_and_an_end():
    batch = demonstrations(TASK, TOKENIZER, 7, 3, skip_too_long=False)
    assert texts(batch) == expected(PROMPTS)
    assert np.array_equal(batch.rows["prompt_id"], np.arange(len(PROMPTS)))


@pytest.mark.parametrize(("prompt_tokens", "response_tokens"), [(7, 2), (6, 3), (5, 2)])
def test_one_that_is_too_long_is_an_error_or_left_out(prompt_tokens, response_tokens, caplog):
    short = [p for p in PROMPTS if len(p.text) < prompt_tokens and len(p.answer) < response_tokens]
    assert 0 < len(short) < len(PROMPTS)
    first = next(p for p in PROMPTS if p not in short)
    with pytest.raises(ConfigError, match=rf"solution of prompt {first.id} .* training\.skip_too_long=true"):
        demonstrations(TASK, TOKENIZER, prompt_tokens, response_tokens, skip_too_long=False)
    assert caplog.text == ""
    assert texts(demonstrations(TASK, TOKENIZER, prompt_tokens, response_tokens, skip_too_long=True)) == expected(short)
    assert f"{len(PROMPTS) - len(short)} of {len(PROMPTS)} demonstrations are left out" in caplog.text


def test_nothing_is_said_where_all_fit(caplog):
    demonstrations(TASK, TOKENIZER, 7, 3, skip_too_long=True)
    assert caplog.text == ""


def test_something_has_to_be_left():
    with pytest.raises(ConfigError, match=f"none of the {len(PROMPTS)} demonstrations fits into 7 tokens"):
        demonstrations(TASK, TOKENIZER, 7, 1, skip_too_long=True)


def test_a_solution_is_tokenized_as_it_stands_behind_its_prompt():
    """This tokenizer puts a mark at the beginning of every text, as SentencePiece does."""
    vocabulary = {token: i for i, token in enumerate(["<eos>", "▁", *"0123456789+="])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.normalizer = normalizers.Prepend("▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    marking = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")
    first = next(iter(demonstrations(TASK, marking, 9, 9, skip_too_long=False)))
    assert marking.convert_ids_to_tokens(first.prompt_tokens) == ["▁", *PROMPTS[0].text]
    assert marking.convert_ids_to_tokens(first.response_tokens) == [*PROMPTS[0].answer, "<eos>"]
