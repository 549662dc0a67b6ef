"""Loading, padding, and log-probabilities against the plain full-logits log-softmax."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tba_hpc.config import ModelConfig
from tba_hpc.models import Sequences, fresh_llama, load_model_config, load_policy, load_tokenizer, token_logprobs
from tba_hpc.settings import ConfigError
from tba_hpc.trajectory import Trajectory, TrajectoryBatch

VOCAB, EOS, CPU = 97, 2, torch.device("cpu")
SIZES: dict[str, Any] = {"vocab_size": VOCAB, "eos_token_id": EOS, "pad_token_id": EOS, "bos_token_id": 1}
LLAMA: dict[str, Any] = {
    **SIZES,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
    "llama_tied": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=True)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**SIZES, n_embd=16, n_layer=2, n_head=2, n_positions=64)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**LLAMA)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA, num_key_value_heads=1)),
}


def make_batch(lengths: list[tuple[int, int]], seed: int = 0) -> TrajectoryBatch:
    """Random tokens, EOS among them, in (prompt, response) lengths."""
    rng = np.random.default_rng(seed)
    return TrajectoryBatch.from_trajectories(
        [
            Trajectory(
                prompt_id=i,
                prompt_tokens=rng.integers(0, VOCAB, p).astype(np.int32),
                response_tokens=np.append(rng.integers(0, VOCAB, r), [EOS])[-r:].astype(np.int32)
                if r
                else np.empty(0, np.int32),
                behavior_logprobs=np.zeros(r, np.float32),
                reference_logprobs=np.zeros(r, np.float32),
                reward=0.0,
                correct=False,
                finished=True,
                temperature=1.0,
                policy_version=0,
                reference_version=0,
                searcher=0,
            )
            for i, (p, r) in enumerate(lengths)
        ]
    )


LENGTHS = [(3, 5), (1, 9), (7, 0), (4, 1)]


def make_model(name: str, scale: float = 20.0) -> PreTrainedModel:
    """Weights are blown up: the initial ones give nearly uniform distributions, which hide mistakes."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(scale)
    return model


def plain_logprobs(model: PreTrainedModel, batch: TrajectoryBatch, temperature: float) -> list[torch.Tensor]:
    """One unpadded sequence at a time, all logits at once: `[R_i]` each."""
    result = []
    for t in batch:
        ids = torch.from_numpy(np.concatenate([t.prompt_tokens, t.response_tokens])).long()[None]
        logprobs = torch.log_softmax(model(input_ids=ids).logits[0].float() / temperature, dim=-1)
        targets = ids[0, len(t.prompt_tokens) :]
        result.append(logprobs[len(t.prompt_tokens) - 1 : -1].gather(-1, targets[:, None])[:, 0])
    return result


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunk_tokens", [1, 4, 1000])
def test_logprobs_and_gradients_equal_plain_log_softmax(name: str, chunk_tokens: int) -> None:
    model, batch, temperature = make_model(name), make_batch(LENGTHS), 0.7
    sequences = Sequences.from_trajectories(batch, EOS, CPU)
    weights = torch.arange(1.0, 16.0)

    expected = plain_logprobs(model, batch, temperature)
    expected_grads = torch.autograd.grad((torch.cat(expected) * weights).sum(), list(model.parameters()))
    logprobs = token_logprobs(model, sequences, temperature, chunk_tokens)
    flat = logprobs[sequences.response_mask]
    grads = torch.autograd.grad((flat * weights).sum(), list(model.parameters()))

    assert logprobs.shape == (4, 9)
    assert logprobs.dtype == torch.float32
    assert (logprobs[~sequences.response_mask] == 0).all()
    torch.testing.assert_close(flat, torch.cat(expected), atol=1e-4, rtol=1e-5)
    for parameter, grad, expected_grad in zip(model.parameters(), grads, expected_grads, strict=True):
        scale = max(1.0, float(expected_grad.abs().max()))
        torch.testing.assert_close(grad / scale, expected_grad / scale, atol=1e-5, rtol=1e-4, msg=str(parameter.shape))


def test_logprobs_do_not_depend_on_gradient_recording() -> None:
    model, sequences = make_model("llama"), Sequences.from_trajectories(make_batch(LENGTHS), EOS, CPU)
    with torch.no_grad():
        silent = token_logprobs(model, sequences, 1.0, 4)
    assert torch.equal(silent, token_logprobs(model, sequences, 1.0, 4).detach())


def test_logprobs_of_only_empty_responses_can_be_differentiated() -> None:
    model, sequences = make_model("llama"), Sequences.from_trajectories(make_batch([(2, 0), (3, 0)]), EOS, CPU)
    logprobs = token_logprobs(model, sequences, 1.0, 4)
    logprobs.sum().backward()
    assert logprobs.shape == (2, 0)
    assert all(p.grad is None or (p.grad == 0).all() for p in model.parameters())


class LargestLogits(TorchDispatchMode):
    """Records the most rows of any float tensor whose last dimension is the vocabulary."""

    rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.shape[-1:] == (VOCAB,):
                self.rows = max(self.rows, tensor.numel() // VOCAB)
        return out


def test_no_more_than_a_chunk_of_logits_exists() -> None:
    """The transposed head, `[16, V]`, is allowed for: the chunk is larger."""
    model, chunk = make_model("llama"), 20
    sequences = Sequences.from_trajectories(make_batch([(5, 30)] * 6), EOS, CPU)
    with LargestLogits() as largest:
        token_logprobs(model, sequences, 1.0, chunk).sum().backward()
    assert largest.rows == chunk
    with LargestLogits() as largest:
        token_logprobs(model, sequences, 1.0, 180).sum().backward()
    assert largest.rows == 180


def test_logits_are_not_kept_for_the_backward_pass() -> None:
    model, sequences = make_model("llama"), Sequences.from_trajectories(make_batch([(5, 30)] * 6), EOS, CPU)
    kept: list[torch.Size] = []

    def record(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        token_logprobs(model, sequences, 1.0, 20)
    assert kept
    assert (20, VOCAB) not in kept


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_sequences_hold_exactly_the_tokens(lengths: list[tuple[int, int]]) -> None:
    batch = make_batch(lengths)
    sequences = Sequences.from_trajectories(batch, EOS, CPU)
    assert sequences.input_ids.shape == (len(lengths), max(p + r for p, r in lengths))
    for i, t in enumerate(batch):
        p, r = len(t.prompt_tokens), len(t.response_tokens)
        assert sequences.input_ids[i, : p + r].tolist() == [*t.prompt_tokens, *t.response_tokens]
        assert (sequences.input_ids[i, p + r :] == EOS).all()
        assert sequences.response_tokens[i, :r].tolist() == t.response_tokens.tolist()
        assert int(sequences.attention_mask[i].sum()) == p + r
        assert sequences.response_mask[i].tolist() == [j < r for j in range(sequences.response_mask.shape[1])]
        assert int(sequences.prompt_lengths[i]) == p


def test_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="prompt 1 has no tokens"):
        Sequences.from_trajectories(make_batch([(2, 3), (0, 3)]), EOS, CPU)


def test_empty_batch_makes_empty_sequences() -> None:
    sequences = Sequences.from_trajectories(TrajectoryBatch.empty(), EOS, CPU)
    assert sequences.input_ids.shape == (0, 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loaded_policy_has_the_saved_weights_and_no_dropout(tmp_path: Path, dtype: Any) -> None:
    saved = make_model("gpt2", scale=1.0)
    saved.save_pretrained(tmp_path)
    model = load_policy(str(tmp_path), ModelConfig(path="unused", dtype=dtype), CPU)
    assert not model.training
    assert model.dtype == getattr(torch, dtype)
    for loaded, original in zip(model.parameters(), saved.parameters(), strict=True):
        assert torch.equal(loaded, original.to(loaded.dtype))
    ids = torch.arange(12)[None]
    quiet = model(ids).logits
    model.train()
    assert torch.equal(model(ids).logits, quiet)


@pytest.mark.parametrize("name", MODELS)
def test_supported_architectures_load(tmp_path: Path, name: str) -> None:
    saved = make_model(name)
    saved.save_pretrained(tmp_path)
    model = load_policy(str(tmp_path), ModelConfig(path="unused"), CPU)
    assert type(model) is type(saved)


def test_a_path_without_a_model_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ValueError, match=str(path)):
            load_policy(str(path), ModelConfig(path="unused"), CPU)


def test_the_folder_around_a_model_is_told_from_the_model(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    (run_dir / "final").mkdir(parents=True)
    (run_dir / "final" / "config.json").write_text("{}")
    for load in (load_model_config, load_tokenizer):
        with pytest.raises(ConfigError, match=r"run' holds no model; did you mean '.*run/final'"):
            load(str(run_dir))
        for path in (str(tmp_path / "nothing"), "./nothing", "runs/nothing/final"):
            with pytest.raises(ConfigError, match="there is no such folder"):
                load(path)


def test_missing_and_damaged_weights_are_refused(tmp_path: Path) -> None:
    model = make_model("llama")
    state = {k: v for k, v in model.state_dict().items() if "layers.1.mlp" not in k}
    model.save_pretrained(tmp_path, state_dict=state)
    with pytest.raises(ValueError, match=r"incomplete: no weights for model\.layers\.1\.mlp"):
        load_policy(str(tmp_path), ModelConfig(path="unused"), CPU)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ValueError, match="cannot load a causal language model"):
        load_policy(str(tmp_path), ModelConfig(path="unused"), CPU)


def test_models_without_a_linear_head_are_refused(tmp_path: Path) -> None:
    sizes = {**LLAMA, "num_key_value_heads": 1}
    capped = Gemma2ForCausalLM(Gemma2Config(**sizes, head_dim=8))
    capped.save_pretrained(tmp_path / "capped")
    with pytest.raises(ValueError, match="final_logit_softcapping"):
        load_policy(str(tmp_path / "capped"), ModelConfig(path="unused", attention="eager"), CPU)
    CohereForCausalLM(CohereConfig(**sizes)).save_pretrained(tmp_path / "scaled")
    with pytest.raises(ValueError, match="not those of a linear head"):
        load_policy(str(tmp_path / "scaled"), ModelConfig(path="unused"), CPU)


def make_tokenizer(**special: str) -> PreTrainedTokenizerFast:
    vocab = {token: i for i, token in enumerate(["<pad>", "<s>", "</s>", "a", "b"])}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(vocab, unk_token="a")), **special)


def test_tokenizer_pads_with_eos_when_it_has_no_pad(tmp_path: Path) -> None:
    make_tokenizer(eos_token="</s>").save_pretrained(tmp_path / "no_pad")
    make_tokenizer(eos_token="</s>", pad_token="<pad>").save_pretrained(tmp_path / "pad")
    assert load_tokenizer(str(tmp_path / "no_pad")).pad_token_id == 2
    assert load_tokenizer(str(tmp_path / "pad")).pad_token_id == 0


def test_tokenizer_without_eos_or_absent_is_refused(tmp_path: Path) -> None:
    make_tokenizer(pad_token="<pad>").save_pretrained(tmp_path / "no_eos")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        load_tokenizer(str(tmp_path / "no_eos"))
    with pytest.raises(ValueError, match="cannot load a tokenizer"):
        load_tokenizer(str(tmp_path / "none"))


INIT = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}


def test_fresh_llama_follows_seed_and_tokenizer() -> None:
    tokenizer = make_tokenizer(bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    state = torch.get_rng_state()
    one, same, other = (fresh_llama(INIT, tokenizer, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    weights = [m.get_input_embeddings().weight for m in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert weights[0].shape == (5, 16)
    assert (one.config.bos_token_id, one.config.eos_token_id, one.config.pad_token_id) == (1, 2, 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hiden_size": 16}, "did you mean 'hidden_size'"),
        ({"vocab_size": 9}, "no such setting"),
        ({"num_hidden_layers": "three"}, "does not describe a Llama"),
        ({"num_attention_heads": 3}, "does not describe a Llama"),
    ],
)
def test_fresh_llama_refuses_wrong_settings(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fresh_llama({**INIT, **wrong}, make_tokenizer(eos_token="</s>"), 0)
