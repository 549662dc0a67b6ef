"""The two places where text and token ids meet: prompts before generation, responses when they are scored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from tba_hpc.rollout.engine import Rollout
from tba_hpc.settings import ConfigError
from tba_hpc.trajectory import Prompt


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt], max_prompt_tokens: int
) -> list[NDArray[np.int32]]:
    """Token ids `[P]` of each prompt, with the special tokens that the tokenizer itself puts around a text.

    Raises `ConfigError` naming the first prompt of more than `max_prompt_tokens` tokens, or of none."""
    if not prompts:
        return []
    encoded = [np.asarray(ids, np.int32) for ids in tokenizer([prompt.text for prompt in prompts])["input_ids"]]
    for prompt, tokens in zip(prompts, encoded, strict=True):
        if not 0 < len(tokens) <= max_prompt_tokens:
            start = prompt.text if len(prompt.text) <= 60 else prompt.text[:57] + "…"
            raise ConfigError(
                f"prompt {prompt.id} ({start!r}) has {len(tokens)} tokens; 1 to {max_prompt_tokens} are allowed "
                "(max_prompt_tokens)"
            )
    return encoded


def decode_responses(tokenizer: PreTrainedTokenizerBase, rollouts: Sequence[Rollout]) -> list[str]:
    """The text of each response, less the end-of-sequence token that closed it. Other special tokens stay visible:
    a grader should see all that the policy said."""
    tokens = [rollout.tokens[: len(rollout.tokens) - rollout.finished].tolist() for rollout in rollouts]
    return tokenizer.batch_decode(tokens, skip_special_tokens=False) if tokens else []
