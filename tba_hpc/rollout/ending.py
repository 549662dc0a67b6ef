"""How a response ends by itself, and its text without the end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, StopStringCriteria

from tba_hpc.settings import ConfigError


class ResponseEnd:
    """The token ids that end a response, and the texts that do as soon as one is complete. What ends it stays in the
    trajectory, as the policy chose it, but is no part of its text."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        token_ids: Collection[int],
        stop: Sequence[str] = (),
        device: torch.device | None = None,
    ) -> None:
        """Raises `ConfigError` for texts to stop at if the tokenizer does not let them be found in its tokens."""
        self.token_ids = frozenset(token_ids)
        self.stop = tuple(stop)
        self._tokenizer = tokenizer
        self._ids = torch.tensor(sorted(self.token_ids), device=device)
        self._finds_stop = _stop_criterion(tokenizer, self.stop) if self.stop else None
        self.reach: int = self._finds_stop.maximum_token_len if self._finds_stop else 1
        """Tokens at the end of a response that decide whether it has ended."""

    @classmethod
    def of(cls, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str] = ()) -> ResponseEnd:
        """Ends with the tokenizer's end-of-sequence token and with all that the model's generation settings name: chat
        models often close a turn with another token."""
        ids = getattr(model.generation_config, "eos_token_id", None)
        named = ids if isinstance(ids, list) else [] if ids is None else [ids]
        return cls(tokenizer, {*named, tokenizer.eos_token_id}, stop, model.device)

    def reached(self, tokens: Tensor) -> Tensor:
        """Whether responses end, `[A]` bool, with their last tokens `[A, R]`, R at most `reach`."""
        ended = torch.isin(tokens[:, -1], self._ids)
        return ended if self._finds_stop is None else ended | self._finds_stop(tokens, None)

    def texts(self, responses: Sequence[NDArray[np.int32]]) -> list[str]:
        """The text of each response `[R]`, up to what ended it. Other special tokens stay visible: a grader should see
        all that the policy said."""
        said = [ids[:-1] if ids and ids[-1] in self.token_ids else ids for ids in (r.tolist() for r in responses)]
        texts = self._tokenizer.batch_decode(said, skip_special_tokens=False) if said else []
        return [self._before_stop(text) for text in texts]

    def _before_stop(self, text: str) -> str:
        ends = [end for stop in self.stop if (end := text.find(stop)) >= 0]
        return text[: min(ends)] if ends else text


def _stop_criterion(tokenizer: PreTrainedTokenizerBase, stop: tuple[str, ...]) -> Any:
    try:
        return StopStringCriteria(tokenizer, list(stop))
    # The tokenizers library raises nothing more special where a tokenizer cannot encode some text.
    except Exception as error:
        stops = list(stop)
        raise ConfigError(f"texts such as stop = {stops} cannot be found with this tokenizer: {error}") from error
