from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, LlamaConfig

from tba_hpc.models import Sequences, token_logprobs
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.engine import SamplingParams
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.tasks.arithmetic import Arithmetic
from tba_hpc.trajectory import Trajectory, TrajectoryBatch

VOCAB, EOS = 16, 2
ENDING = ResponseEnd(Arithmetic({}).new_tokenizer(), {EOS})
CONFIGS = {
    "llama": LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        initializer_range=0.3,
    ),
    "gpt2": GPT2Config(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=2, n_positions=64, initializer_range=0.3),
    "gpt_neox": GPTNeoXConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    ),
}
"""The large spread of initial weights makes distributions far from uniform, so that a wrong position shows."""

PROMPTS = [
    np.array(tokens, np.int32) for tokens in ([3, 4, 5, 6, 7, 8, 9], [1], [5, EOS, 5], [3, 4, 5, 6, 7, 8, 9, 10])
]
PARAMS = SamplingParams(samples=5, max_tokens=12, temperature=1.0, seed=3)


def build_model(name, seed=0):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(CONFIGS[name], attn_implementation="sdpa").eval()


@pytest.fixture(scope="module", params=CONFIGS)
def model(request):
    return build_model(request.param)


@pytest.fixture(scope="module")
def llama():
    return build_model("llama")


def recompute(model, prompts, rollouts, temperature):
    """The log-probabilities that the trainer gives the rollouts, as one array a rollout. Pads with EOS."""
    pairs = [(prompt, rollout) for prompt, group in zip(prompts, rollouts, strict=True) for rollout in group]
    batch = TrajectoryBatch.from_trajectories([as_trajectory(*pair, temperature) for pair in pairs])
    sequences = Sequences.from_trajectories(batch, EOS, torch.device("cpu"))
    with torch.no_grad():
        logprobs = token_logprobs(model, sequences, temperature, chunk_tokens=64).numpy()
    return [logprobs[i, : len(rollout.tokens)] for i, (_, rollout) in enumerate(pairs)]


def as_trajectory(prompt, rollout, temperature):
    return Trajectory(
        prompt_id=0,
        prompt_tokens=prompt,
        response_tokens=rollout.tokens,
        behavior_logprobs=rollout.logprobs,
        reference_logprobs=rollout.logprobs,
        reward=0.0,
        correct=False,
        finished=rollout.finished,
        temperature=temperature,
        policy_version=0,
        reference_version=0,
        searcher=0,
    )


def flat(rollouts):
    return [rollout for group in rollouts for rollout in group]


def tokens_of(rollouts):
    return [[rollout.tokens.tolist() for rollout in group] for group in rollouts]


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logprobs_agree_with_those_of_training(model, temperature):
    rollouts = HFEngine(model, ENDING).generate(PROMPTS, replace(PARAMS, temperature=temperature))
    assert {rollout.finished for rollout in flat(rollouts)} == {True, False}
    for rollout, expected in zip(flat(rollouts), recompute(model, PROMPTS, rollouts, temperature), strict=True):
        np.testing.assert_allclose(rollout.logprobs, expected, atol=1e-4)


def test_greedy_matches_the_most_likely_tokens_and_logprobs_at_temperature_one(model):
    rollouts = HFEngine(model, ENDING).generate(PROMPTS, replace(PARAMS, samples=1, temperature=0.0))
    for prompt, rollout, expected in zip(
        PROMPTS, flat(rollouts), recompute(model, PROMPTS, rollouts, 1.0), strict=True
    ):
        np.testing.assert_allclose(rollout.logprobs, expected, atol=1e-4)
        sequence = torch.from_numpy(np.concatenate([prompt, rollout.tokens]).astype(np.int64))[None]
        with torch.no_grad():
            most_likely = model(sequence).logits[0].argmax(-1)
        np.testing.assert_array_equal(most_likely[len(prompt) - 1 : -1], rollout.tokens)


def test_greedy_responses_do_not_depend_on_the_rest_of_the_batch(model):
    engine, greedy = HFEngine(model, ENDING), replace(PARAMS, samples=2, temperature=0.0)
    together = tokens_of(engine.generate(PROMPTS, greedy))
    assert together == [tokens_of(engine.generate([prompt], greedy))[0] for prompt in PROMPTS]
    assert together[::-1] == tokens_of(engine.generate(PROMPTS[::-1], greedy))
    assert all(first == second for first, second in together)


def test_responses_end_at_the_first_eos_or_at_the_limit(model):
    rollouts = flat(HFEngine(model, ENDING).generate(PROMPTS, replace(PARAMS, samples=20)))
    for rollout in rollouts:
        assert rollout.tokens.dtype == np.int32
        assert rollout.logprobs.dtype == np.float32
        assert len(rollout.tokens) == len(rollout.logprobs)
        assert rollout.finished == (rollout.tokens[-1] == EOS)
        assert EOS not in rollout.tokens[:-1]
        assert rollout.finished or len(rollout.tokens) == PARAMS.max_tokens
    assert len({len(rollout.tokens) for rollout in rollouts}) > 4


def test_the_seed_decides(llama):
    engine = HFEngine(llama, ENDING)
    first = tokens_of(engine.generate(PROMPTS, PARAMS))
    assert first == tokens_of(engine.generate(PROMPTS, PARAMS))
    assert first != tokens_of(engine.generate(PROMPTS, replace(PARAMS, seed=4)))
    assert all(len({tuple(tokens) for tokens in group}) > 1 for group in first)


def test_top_p_restricts_and_renormalises(llama):
    rollouts = HFEngine(llama, ENDING).generate(PROMPTS, replace(PARAMS, top_p=0.5))
    unrestricted = recompute(llama, PROMPTS, rollouts, 1.0)
    for rollout, expected in zip(flat(rollouts), unrestricted, strict=True):
        assert (rollout.logprobs <= 0).all()
        assert (rollout.logprobs >= expected - 1e-4).all()
        # What is left of a nucleus of 0.5 holds at least half of the mass.
        assert (rollout.logprobs <= expected + np.log(2) + 1e-4).all()


def test_finished_rows_leave_the_batch_and_prompts_run_once(llama):
    shapes = []
    handle = llama.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    try:
        rollouts = flat(HFEngine(llama, ENDING).generate(PROMPTS, replace(PARAMS, samples=20)))
    finally:
        handle.remove()
    assert shapes[0] == (len(PROMPTS), max(map(len, PROMPTS)))
    assert {width for _, width in shapes[1:]} == {1}
    for step, (rows, _) in enumerate(shapes[1:], start=1):
        needed = sum(len(rollout.tokens) > step for rollout in rollouts)
        assert needed <= rows <= needed / (7 / 8)


def test_stopping_keeps_only_what_has_ended(llama):
    engine, params = HFEngine(llama, ENDING), replace(PARAMS, samples=20)
    complete = engine.generate(PROMPTS, params)
    polls = []

    def after_four_tokens():
        polls.append(None)
        return len(polls) > 4

    stopped = engine.generate(PROMPTS, params, after_four_tokens)
    assert len(polls) == 5
    ended = [[t.tolist() for r in group if len(t := r.tokens) <= 4] for group in complete]
    assert tokens_of(stopped) == ended
    assert 0 < len(flat(stopped)) < len(flat(complete))
    assert all(rollout.finished for rollout in flat(stopped))
    assert engine.generate(PROMPTS, params, lambda: True) == [[] for _ in PROMPTS]


def test_no_prompts_and_a_single_token(llama):
    engine = HFEngine(llama, ENDING)
    assert engine.generate([], PARAMS) == []
    rollouts = flat(engine.generate(PROMPTS, replace(PARAMS, max_tokens=1)))
    assert len(rollouts) == len(PROMPTS) * PARAMS.samples
    assert all(len(rollout.tokens) == 1 for rollout in rollouts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 0}, "samples = 0"),
        ({"max_tokens": 0}, "max_tokens = 0"),
        ({"temperature": -1.0}, "temperature = -1.0"),
        ({"top_p": 0.0}, "top_p = 0.0"),
        ({"max_tokens": 60}, "exceed the 64 positions"),
    ],
)
def test_settings_out_of_range_are_refused(llama, change, message):
    with pytest.raises(ValueError, match=message):
        HFEngine(llama, ENDING).generate(PROMPTS, replace(PARAMS, **change))


def test_an_empty_prompt_is_refused(llama):
    with pytest.raises(ValueError, match="prompt number 1 of the batch has no tokens"):
        HFEngine(llama, ENDING).generate([PROMPTS[0], np.empty(0, np.int32)], PARAMS)


@pytest.mark.parametrize("name", CONFIGS)
def test_loaded_weights_are_used_tied_ones_included(name):
    source, engine = build_model(name, seed=1), HFEngine(build_model(name, seed=0), ENDING)
    engine.load_weights(iter(source.named_parameters()), version=7)
    assert engine.version == 7
    rollouts = engine.generate(PROMPTS, PARAMS)
    for rollout, expected in zip(flat(rollouts), recompute(source, PROMPTS, rollouts, 1.0), strict=True):
        np.testing.assert_allclose(rollout.logprobs, expected, atol=1e-4)


def without_last(weights):
    return weights[:-1]


def twice(weights):
    return [*weights, weights[0]]


def unknown(weights):
    return [*weights, ("lm_head.bias", torch.zeros(VOCAB))]


def reshaped(weights):
    return [(name, tensor[..., :-1]) for name, tensor in weights]


def half(weights):
    return [(name, tensor.bfloat16()) for name, tensor in weights]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_last, "1 weights of the model did not come, among them 'model.norm.weight'"),
        (twice, "'model.embed_tokens.weight' came twice"),
        (unknown, "'lm_head.bias' came twice, or the model has no such parameter"),
        (reshaped, r"'model.embed_tokens.weight' is \[16, 63\] torch.float32; the model has \[16, 64\]"),
        (half, "torch.bfloat16"),
    ],
)
def test_wrong_weights_are_refused_and_leave_the_engine_unusable_until_right_ones_come(spoil, message):
    model = build_model("llama")
    engine, weights = HFEngine(model, ENDING), [(name, p.detach().clone()) for name, p in model.named_parameters()]
    with pytest.raises(ValueError, match=message):
        engine.load_weights(spoil(weights), version=1)
    with pytest.raises(RuntimeError, match="incomplete"):
        engine.generate(PROMPTS, PARAMS)
    assert engine.version == 0
    engine.load_weights(weights, version=1)
    assert len(engine.generate(PROMPTS, PARAMS)) == len(PROMPTS)
