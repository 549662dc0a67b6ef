"""Prompts as token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jinja2 import TemplateError
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from tba_hpc.settings import ConfigError
from tba_hpc.trajectory import Message, Prompt


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt], max_prompt_tokens: int
) -> list[NDArray[np.int32]]:
    """Token ids `[P]` of each prompt: of a text with the special tokens that the tokenizer itself puts around it, of a
    conversation with those of the chat template alone, up to where the assistant's next turn begins.

    Raises `ConfigError` naming the first prompt of more than `max_prompt_tokens` tokens, or of none, and for a
    conversation that the tokenizer has no chat template for."""
    texts = _text_tokens(tokenizer, [prompt.text for prompt in prompts if not prompt.messages])
    chats = _chat_tokens(tokenizer, [prompt.messages for prompt in prompts if prompt.messages])
    encoded = [np.asarray(next(chats if prompt.messages else texts), np.int32) for prompt in prompts]
    for prompt, tokens in zip(prompts, encoded, strict=True):
        if not 0 < len(tokens) <= max_prompt_tokens:
            start = prompt.text if len(prompt.text) <= 60 else prompt.text[:57] + "…"
            raise ConfigError(
                f"prompt {prompt.id} ({start!r}) has {len(tokens)} tokens; 1 to {max_prompt_tokens} are allowed: what "
                "max_prompt_tokens says, or the model's positions leave beside max_response_tokens"
            )
    return encoded


def _text_tokens(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> Iterator[list[int]]:
    if not texts:
        return iter([])
    try:
        return iter(tokenizer(texts)["input_ids"])
    # The tokenizers library raises nothing more special where a vocabulary lacks a character.
    except Exception as error:
        start = texts[0] if len(texts[0]) <= 60 else texts[0][:57] + "…"
        raise ConfigError(
            f"the model's tokenizer cannot encode the prompts, the first of which is {start!r}: {error}\n"
            "Does the task, with its options, fit the model?"
        ) from error


def _chat_tokens(tokenizer: PreTrainedTokenizerBase, conversations: list[tuple[Message, ...]]) -> Iterator[list[int]]:
    if not conversations:
        return iter([])
    if tokenizer.chat_template is None:
        raise ConfigError(
            "the task's prompts are conversations, but the model's tokenizer has no chat template: choose another "
            "model, or set the task's option prompt.chat to false and give it a template for plain text"
        )
    turns = [[asdict(message) for message in conversation] for conversation in conversations]
    try:
        encoded: Any = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
    except TemplateError as error:
        raise ConfigError(f"the chat template of the model's tokenizer refuses the task's prompts: {error}") from error
    return iter(encoded["input_ids"])
