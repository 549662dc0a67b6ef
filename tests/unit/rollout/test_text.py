import numpy as np
import pytest

from tba_hpc.rollout.engine import Rollout
from tba_hpc.rollout.text import decode_responses, encode_prompts
from tba_hpc.tasks.arithmetic import Arithmetic
from tba_hpc.trajectory import Prompt

TOKENIZER = Arithmetic({}).new_tokenizer()
PAD, EOS = TOKENIZER.pad_token_id, TOKENIZER.eos_token_id


def rollout(tokens, finished):
    return Rollout(np.array(tokens, np.int32), np.zeros(len(tokens), np.float32), finished)


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


def test_a_response_loses_its_closing_eos_and_nothing_else():
    eight, five = TOKENIZER("85", add_special_tokens=False)["input_ids"]
    rollouts = [
        rollout([eight, five, EOS], finished=True),
        rollout([eight, five], finished=False),
        rollout([EOS], finished=True),
        rollout([eight, PAD, five, EOS], finished=True),
    ]
    assert decode_responses(TOKENIZER, rollouts) == ["85", "85", "", "8<pad>5"]
    assert decode_responses(TOKENIZER, []) == []
