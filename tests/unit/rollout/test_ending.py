import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.engine import SamplingParams
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.settings import ConfigError
from tba_hpc.tasks.arithmetic import Arithmetic

DIGITS = Arithmetic({}).new_tokenizer()
PAD, EOS = DIGITS.pad_token_id, DIGITS.eos_token_id


@pytest.fixture(scope="module")
def words():
    """A byte-level tokenizer, as most models have, with merges that do not respect the texts to stop at."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<end>", "<turn>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["so 72\n\nQuestion: how many?\nAnswer: "] * 20 + ["Q: ok\n\nQue"] * 30, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")


def ids(tokenizer, text):
    return np.array(tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)


def test_a_text_ends_before_the_token_that_ended_it_and_keeps_every_other():
    eight, five = ids(DIGITS, "85").tolist()
    responses = [[eight, five, EOS], [eight, five], [EOS], [eight, PAD, five, EOS], []]
    texts = ResponseEnd(DIGITS, {EOS}).texts([np.array(response, np.int32) for response in responses])
    assert texts == ["85", "85", "", "8<pad>5", ""]
    assert ResponseEnd(DIGITS, {EOS}).texts([]) == []


@pytest.mark.parametrize(
    ("named", "expected"), [(None, {0}), (1, {0, 1}), ([1, 5], {0, 1, 5}), ([], {0})], ids=["none", "one", "two", "[]"]
)
def test_all_end_tokens_of_the_model_end_a_response(words, named, expected):
    model = tiny_llama(words)
    model.generation_config.eos_token_id = named
    ending = ResponseEnd.of(model, words)
    assert ending.token_ids == expected
    ended = ending.reached(torch.tensor([[0], [1], [5], [7]]))
    assert ended.tolist() == [token in expected for token in (0, 1, 5, 7)]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("so 72\n\nQuestion: how", "so 72"),
        ("so 72\n\nQuestion:", "so 72"),
        ("\n\nQuestion:\n\nQuestion:", ""),
        ("72</answer> or 73", "72"),
        ("72</answer>\n\nQuestion:", "72"),
        ("so 72\n\nQuestions", "so 72\n\nQuestions"),
        ("72</ answer>", "72</ answer>"),
        ("½ é\n\nQuestion: ½", "½ é"),
    ],
)
def test_a_response_ends_as_soon_as_a_text_to_stop_at_is_complete(words, text, seen):
    stop = ["\n\nQuestion:", "</answer>"]
    ending, tokens = ResponseEnd(words, {0}, stop), ids(words, text)
    ended = [bool(ending.reached(torch.from_numpy(tokens[None, :n]).long())) for n in range(1, len(tokens) + 1)]
    complete = [any(s in words.decode(tokens[:n].tolist()) for s in stop) for n in range(1, len(tokens) + 1)]
    assert any(ended) == any(complete)
    if any(ended):
        assert ended.index(True) == complete.index(True)
        tokens = tokens[: ended.index(True) + 1]
    assert ending.texts([tokens]) == [seen]
    recent = torch.from_numpy(tokens[None, -ending.reach :]).long()
    assert bool(ending.reached(recent)) == any(ended)


def test_the_engine_stops_each_response_at_its_own_end(words):
    torch.manual_seed(0)
    model = tiny_llama(words)
    prompts, params = [ids(words, "how many?"), ids(words, "so")], SamplingParams(samples=40, max_tokens=30, seed=1)
    free = [r for group in HFEngine(model, ResponseEnd(words, {0})).generate(prompts, params) for r in group]
    stop = ["a", "z"]
    ending = ResponseEnd(words, {0}, stop)
    stopped = [r for group in HFEngine(model, ending).generate(prompts, params) for r in group]
    assert len(stopped) == len(free)
    for rollout in stopped:
        text = words.decode(rollout.tokens.tolist())
        before = words.decode(rollout.tokens[:-1].tolist())
        assert not any(s in before for s in stop)
        assert rollout.finished == (rollout.tokens[-1] == 0 or any(s in text for s in stop))
        assert not any(s in said for said in ending.texts([rollout.tokens]) for s in stop)
    assert sum(map(len, (r.tokens for r in stopped))) < sum(map(len, (r.tokens for r in free)))
    assert {r.finished for r in stopped} == {True, False}


def test_a_tokenizer_that_cannot_find_texts_is_named():
    with pytest.raises(ConfigError, match=r"stop = \['=\+'\] cannot be found with this tokenizer"):
        ResponseEnd(DIGITS, {EOS}, ["=+"])


def tiny_llama(tokenizer):
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).eval()
