"""The language models of a run: loading them, starting fresh ones, and the log-probabilities they give responses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tba_hpc.config import ModelConfig
from tba_hpc.settings import ConfigError, did_you_mean
from tba_hpc.trajectory import TrajectoryBatch

_SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
"""Settings that bend large logits only, so that no small trial input reveals them."""
_LOAD_ERRORS = (OSError, ValueError, ImportError, RuntimeError, SafetensorError, StrictDataclassError)
"""What transformers raises for a path, a hub name, a configuration or a file that it cannot use."""
_MODEL_FOLDERS = ("final", "policy")
"""Where a run keeps its trained model, and a checkpoint its policy."""
_FROM_TOKENIZER = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")


def load_model_config(path: str) -> PretrainedConfig:
    """What the model at `path` is, without its weights. Raises `ConfigError` if that is not described there, or is not
    supported."""
    _check_folder(path)
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(path)
        _refuse_soft_caps(config)
    except _LOAD_ERRORS as error:
        raise ConfigError(f"cannot load a causal language model from model path {path!r}: {error}") from error
    return config


def _check_folder(path: str) -> None:
    """Raises `ConfigError` for a path that is no hub name and leads nowhere, and for a folder around a model's."""
    folder = Path(path)
    if folder.is_dir():
        inside = [name for name in _MODEL_FOLDERS if (folder / name / "config.json").is_file()]
        if inside and not (folder / "config.json").is_file():
            raise ConfigError(f"model path {path!r} holds no model; did you mean {str(folder / inside[0])!r}?")
    elif folder.is_absolute() or path.startswith((".", "~")) or path.count("/") > 1:
        raise ConfigError(f"model path {path!r}: there is no such folder")


def room_for_prompt(config: PretrainedConfig, max_response_tokens: int) -> int:
    """Tokens that the model's positions leave for a prompt. Raises `ConfigError` if that is none."""
    positions = getattr(config, "max_position_embeddings", None) or 2**31
    if positions <= max_response_tokens:
        raise ConfigError(
            f"max_response_tokens = {max_response_tokens} leaves no room for a prompt: the model at "
            f"{config.name_or_path!r} has {positions} positions (max_position_embeddings)"
        )
    return positions - max_response_tokens


def load_policy(path: str, config: ModelConfig, device: torch.device) -> PreTrainedModel:
    """The causal language model at `path`, in evaluation mode and with every dropout set to 0: log-probabilities of
    searcher and trainer must be those of one and the same function, also in training mode.

    Raises `ConfigError` if there is no complete model at `path`, or if its logits are not those of a linear head on
    the hidden states (soft-capped or scaled logits), which `token_logprobs` relies on."""
    model_config = load_model_config(path)
    _disable_dropout(model_config)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            config=model_config,
            dtype=getattr(torch, config.dtype),
            attn_implementation=config.attention,
            output_loading_info=True,
        )
    except _LOAD_ERRORS as error:
        raise ConfigError(f"cannot load a causal language model from model path {path!r}: {error}") from error
    model: PreTrainedModel = loaded[0]
    missing = sorted(loaded[1]["missing_keys"])
    if missing:
        raise ConfigError(f"the checkpoint at {path!r} is incomplete: no weights for {', '.join(missing[:3])}")
    model.to(device)  # type: ignore[arg-type]
    model.eval()  # type: ignore[no-untyped-call]
    _check_linear_head(model, path)
    return model


def _refuse_soft_caps(config: PretrainedConfig) -> None:
    for name in _SOFT_CAPS:
        if getattr(config, name, None):
            raise ValueError(f"it sets {name}, and models that bend their logits are not supported")


def _disable_dropout(config: PretrainedConfig) -> None:
    for name, value in config.to_dict().items():
        if ("dropout" in name or name.endswith("pdrop")) and isinstance(value, float):
            setattr(config, name, 0.0)


@torch.no_grad()
def _check_linear_head(model: PreTrainedModel, path: str) -> None:
    """Compares the model's logits with head(hidden states) on two tokens."""
    head = _head(model)
    if head is None or model.base_model is model:
        raise ConfigError(f"the model at {path!r} ({type(model).__name__}) has no language-model head of its own")
    inputs = {
        "input_ids": torch.tensor([[0, 1]], device=model.device),
        "attention_mask": torch.ones(1, 2, dtype=torch.long, device=model.device),
        "use_cache": False,
    }
    expected = model(**inputs).logits.float()
    logits = head(model.base_model(**inputs).last_hidden_state).float()
    if logits.shape != expected.shape or not torch.allclose(logits, expected, rtol=1e-3, atol=1e-6, equal_nan=True):
        raise ConfigError(
            f"the logits of the model at {path!r} ({type(model).__name__}) are not those of a linear head on its "
            "hidden states (a logit scale?): such models are not supported"
        )


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The tokenizer at `path`. Pads with the end-of-sequence token if it has no padding token: padding is told
    apart by length, never by id. Raises `ConfigError` if there is no tokenizer, or none that can end a sequence."""
    _check_folder(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except _LOAD_ERRORS as error:
        raise ConfigError(f"cannot load a tokenizer from model path {path!r}: {error}") from error
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"the tokenizer at {path!r} has no end-of-sequence token: set eos_token in its configuration")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def fresh_llama(init: dict[str, Any], tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    """A Llama of random weights, float32 on the CPU, in evaluation mode; the same seed gives the same weights.

    `init` are settings of `transformers.LlamaConfig`; the vocabulary and the special tokens are the tokenizer's.
    Raises `ConfigError` for a setting that LlamaConfig does not have or refuses."""
    allowed = set(LlamaConfig.__annotations__) - {"model_type", *_FROM_TOKENIZER}
    for name in init:
        if name not in allowed:
            raise ConfigError(f"init.{name}: no such setting; {did_you_mean(name, allowed)}")
    special = {name: getattr(tokenizer, name) for name in _FROM_TOKENIZER if name != "vocab_size"}
    try:
        config = LlamaConfig(**init, vocab_size=len(tokenizer), **special)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = LlamaForCausalLM(config)
    except (ValueError, TypeError, ZeroDivisionError, StrictDataclassError) as error:
        raise ConfigError(f"init does not describe a Llama: {error}") from error
    model.eval()  # type: ignore[no-untyped-call]
    return model


def recompute_activations(model: PreTrainedModel) -> None:
    """Has the backward pass compute activations again rather than keep them. Takes effect in training mode only."""
    model.gradient_checkpointing_enable(  # type: ignore[no-untyped-call]
        gradient_checkpointing_kwargs={"use_reentrant": False}
    )


@torch.no_grad()
def load_weights(model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Copies `weights`, which must be all of `model.named_parameters()`, each once: of parameters tied together only
    the first name. Raises `ValueError` otherwise, or for another shape or dtype; the model is then of no use."""
    missing = dict(model.named_parameters())
    for name, tensor in weights:
        parameter = missing.pop(name, None)
        if parameter is None:
            raise ValueError(f"weight {name!r} came twice, or the model has no such parameter")
        if (parameter.shape, parameter.dtype) != (tensor.shape, tensor.dtype):
            raise ValueError(
                f"weight {name!r} is {list(tensor.shape)} {tensor.dtype}; the model has "
                f"{list(parameter.shape)} {parameter.dtype}"
            )
        parameter.copy_(tensor)
    if missing:
        raise ValueError(f"{len(missing)} weights of the model did not come, among them {min(missing)!r}")


def copied_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """The model's `state_dict` in CPU memory of its own. Tied parameters share theirs, as in the model."""
    live = model.state_dict(keep_vars=True)
    copies = {id(tensor): tensor.detach().to("cpu", copy=True) for tensor in live.values()}
    return {name: copies[id(tensor)] for name, tensor in live.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """B prompts with their responses as a model takes them: prompt, response, then padding up to the longest."""

    input_ids: Tensor
    """`[B, T]` int64"""
    attention_mask: Tensor
    """`[B, T]` int64, 1 at tokens and 0 at padding"""
    response_tokens: Tensor
    """`[B, R]` int64, R the longest response; it may be 0"""
    response_mask: Tensor
    """`[B, R]` bool, true at tokens"""
    prompt_lengths: Tensor
    """`[B]` int64, at least 1"""

    @classmethod
    def from_trajectories(cls, batch: TrajectoryBatch, pad_token_id: int, device: torch.device) -> Sequences:
        """Raises `ValueError` for an empty prompt: nothing would predict the first token of its response."""
        prompts = batch.rows["prompt_length"]
        responses = batch.rows["response_length"]
        if len(batch) and prompts.min() == 0:
            prompt_id = batch.rows["prompt_id"][prompts.argmin()]
            raise ValueError(f"prompt {prompt_id} has no tokens: a prompt needs at least one, such as a BOS token")
        is_token, is_response = _mask(prompts + responses), _mask(responses)
        is_prompt = np.arange(is_token.shape[1]) < prompts[:, None]
        input_ids = np.full(is_token.shape, pad_token_id, np.int64)
        input_ids[is_prompt] = batch.prompt_tokens
        input_ids[is_token & ~is_prompt] = batch.response_tokens
        response_tokens = np.full(is_response.shape, pad_token_id, np.int64)
        response_tokens[is_response] = batch.response_tokens
        arrays = (input_ids, is_token.astype(np.int64), response_tokens, is_response, prompts.astype(np.int64))
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))


def _mask(lengths: NDArray[np.int32]) -> NDArray[np.bool_]:
    """`[B, longest]`, true at the first `lengths[i]` places of row i."""
    return np.arange(lengths.max(initial=0)) < lengths[:, None]


def token_logprobs(model: PreTrainedModel, sequences: Sequences, temperature: float, chunk_tokens: int) -> Tensor:
    """log softmax(logits / temperature) at each response token, in float32: `[B, R]`, 0 at padding.

    Only hidden states that predict a response token reach the head, `chunk_tokens` of them at a time, and where
    gradients are recorded the backward pass computes a chunk's logits again: no more than `chunk_tokens` rows of
    logits ever exist. The padding is on the right, so causal attention keeps it out of every real position."""
    hidden = model.base_model(
        input_ids=sequences.input_ids, attention_mask=sequences.attention_mask, use_cache=False
    ).last_hidden_state
    mask = sequences.response_mask
    rows, columns = mask.nonzero(as_tuple=True)
    predicting = hidden[rows, sequences.prompt_lengths[rows] - 1 + columns]
    targets = sequences.response_tokens[mask]
    head = _head(model)
    chunks = [
        checkpoint(_head_logprobs, head, h, t, temperature, use_reentrant=False)
        if torch.is_grad_enabled()
        else _head_logprobs(head, h, t, temperature)
        for h, t in zip(torch.split(predicting, chunk_tokens), torch.split(targets, chunk_tokens), strict=True)
    ]
    zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    return zeros.masked_scatter(mask, torch.cat(chunks))


def _head(model: PreTrainedModel) -> Any:
    """The module that maps hidden states to logits; None if the model has none."""
    return model.get_output_embeddings()  # type: ignore[no-untyped-call]


def _head_logprobs(head: torch.nn.Module, hidden: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Log-probabilities `[C]` of `targets [C]` given `hidden [C, H]`."""
    logits = head(hidden).float() / temperature
    return -cross_entropy(logits, targets, reduction="none")
