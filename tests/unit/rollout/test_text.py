import numpy as np
import pytest

from tba_hpc.rollout.text import encode_prompts
from tba_hpc.settings import ConfigError
from tba_hpc.tasks.arithmetic import Arithmetic
from tba_hpc.trajectory import Message, Prompt

TOKENIZER = Arithmetic({}).new_tokenizer()
PAD, EOS = TOKENIZER.pad_token_id, TOKENIZER.eos_token_id
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'system' and loop.index > 1 %}"
    "{{ raise_exception('only the first message may be a system message') }}{% endif %}"
    "{{ message.role | length }}={{ message.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}9={% endif %}"
)
"""Of a tokenizer that knows only digits: a role is the number of its letters, `9` the assistant's."""


def test_prompts_get_the_tokenizers_own_special_tokens():
    short, long = encode_prompts(TOKENIZER, [Prompt(0, "1+2=", "3"), Prompt(1, "37+48=", "85")], 7)
    assert short.dtype == np.int32
    assert TOKENIZER.decode(short.tolist()) == "<bos>1+2="
    assert TOKENIZER.decode(long.tolist()) == "<bos>37+48="
    assert encode_prompts(TOKENIZER, [], 7) == []


def test_too_long_a_prompt_is_named():
    with pytest.raises(ValueError, match=r"prompt 5 \('37\+48='\) has 7 tokens; 1 to 6 are allowed"):
        encode_prompts(TOKENIZER, [Prompt(4, "1+2=", "3"), Prompt(5, "37+48=", "85")], 6)


def test_a_prompt_without_tokens_is_refused():
    def tokenizer(texts):
        return {"input_ids": [[] for _ in texts]}

    with pytest.raises(ValueError, match=r"prompt 3 .* has 0 tokens"):
        encode_prompts(tokenizer, [Prompt(3, "", "")], 6)


def test_a_prompt_that_the_vocabulary_lacks_is_a_mistake_of_the_configuration():
    with pytest.raises(ConfigError, match=r"cannot encode the prompts, the first of which is .How many\?"):
        encode_prompts(TOKENIZER, [Prompt(0, "How many?", "3")], 60)


@pytest.fixture
def chat_tokenizer():
    tokenizer = Arithmetic({}).new_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def chat(index, *turns):
    messages = tuple(Message(role, content) for role, content in turns)
    return Prompt(index, "not what the policy reads", "3", messages)


def test_conversations_go_through_the_chat_template_and_get_no_special_tokens_twice(chat_tokenizer):
    short = chat(0, ("user", "1+2="))
    long = chat(1, ("system", "0"), ("user", "1+2="), ("assistant", "3"), ("user", "37+48="))
    plain = Prompt(2, "5+6=", "11")
    encoded = encode_prompts(chat_tokenizer, [long, plain, short], 64)
    assert [chat_tokenizer.decode(tokens.tolist()) for tokens in encoded] == [
        "<bos>6=0<eos>4=1+2=<eos>9=3<eos>4=37+48=<eos>9=",
        "<bos>5+6=",
        "<bos>4=1+2=<eos>9=",
    ]
    assert {tokens.dtype for tokens in encoded} == {np.dtype(np.int32)}
    one_by_one = [
        chat_tokenizer.apply_chat_template(
            [{"role": message.role, "content": message.content} for message in prompt.messages],
            add_generation_prompt=True,
            return_dict=False,
        )
        for prompt in (long, short)
    ]
    assert [encoded[0].tolist(), encoded[2].tolist()] == one_by_one


def test_a_conversation_needs_a_chat_template():
    with pytest.raises(ConfigError, match=r"has no chat template: .*option prompt\.chat to false"):
        encode_prompts(TOKENIZER, [chat(0, ("user", "1+2="))], 64)


def test_a_conversation_that_the_template_refuses_is_a_mistake_of_the_configuration(chat_tokenizer):
    with pytest.raises(ConfigError, match="refuses the task's prompts: only the first message may be a system"):
        encode_prompts(chat_tokenizer, [chat(0, ("user", "1+2="), ("system", "0"))], 64)


def test_too_long_a_conversation_is_named(chat_tokenizer):
    with pytest.raises(ConfigError, match=r"prompt 6 \('not what .*'\) has 10 tokens; 1 to 9 are allowed"):
        encode_prompts(chat_tokenizer, [chat(6, ("user", "1+2="))], 9)
