"""Generation with a transformers model: a batched decoding loop with a key-value cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel

from tba_hpc.models import load_weights
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.engine import Rollout, SamplingParams
from tba_hpc.rollout.sampling import sample

COMPACT_BELOW = 7 / 8
"""Rows leave the batch once fewer than this share of it is still decoding: dropping them copies the cache, which one
decoding step does as well."""


class HFEngine:
    """Samples from `model`, which it puts into evaluation mode and may share with a trainer in the same process.

    A prompt runs through the model once, whatever the number of samples. The end of a response is decided by its own
    tokens alone, so a padding token plays no part."""

    def __init__(self, model: PreTrainedModel, ending: ResponseEnd, version: int = 0) -> None:
        self.version = version
        self._model: PreTrainedModel = model.eval()  # type: ignore[no-untyped-call]
        self.ending = ending
        self._max_length: int | None = getattr(model.config, "max_position_embeddings", None)
        self._usable = True
        # transformers renames this argument of every model between two of the releases that are supported.
        self._cache_argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"

    @torch.no_grad()
    def generate(
        self,
        prompts: Sequence[NDArray[np.int32]],
        params: SamplingParams,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[list[Rollout]]:
        """`params.samples` rollouts for each prompt `[P]`, in the order of the prompts. The same prompts, settings and
        weights give the same rollouts. Without sampling (temperature 0) the log-probabilities are those at
        temperature 1.

        `should_stop` is asked before every token; once it is true, only the responses that have ended by then are
        returned. Raises `ValueError` for an empty prompt, one too long for the model, or a setting out of range."""
        self._check(prompts, params)
        responses = _Responses(len(prompts) * params.samples, params.max_tokens, self._model.device)
        if not prompts or should_stop():
            return [[] for _ in prompts]
        generator = torch.Generator(self._model.device).manual_seed(params.seed)
        logits, rows = self._prefill(prompts, params.samples)
        for step in range(params.max_tokens):
            tokens, logprobs = sample(logits, params.temperature, params.top_p, generator)
            responses.append(rows.slots, step, tokens, logprobs)
            responses.end(rows.slots, step, self.ending.reached(responses.latest(rows.slots, step, self.ending.reach)))
            decoding = responses.decoding[rows.slots]
            remaining = int(decoding.sum())
            if remaining == 0 or step + 1 == params.max_tokens:
                break
            if should_stop():
                responses.drop_unfinished()
                break
            if remaining < COMPACT_BELOW * len(tokens):
                kept = decoding.nonzero().squeeze(-1)
                tokens, rows = tokens[kept], rows.select(kept)
            logits = self._decode(rows, tokens)
        return responses.rollouts(params.samples)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """As `models.load_weights`. After an error the engine refuses to generate until a load has succeeded."""
        self._usable = False
        load_weights(self._model, weights)
        self.version = version
        self._usable = True

    def _check(self, prompts: Sequence[NDArray[np.int32]], params: SamplingParams) -> None:
        if not self._usable:
            raise RuntimeError("the engine's weights are incomplete: an earlier load_weights failed")
        if params.samples < 1 or params.max_tokens < 1:
            raise ValueError(f"samples = {params.samples} and max_tokens = {params.max_tokens} must be at least 1")
        if params.temperature < 0 or not 0 < params.top_p <= 1:
            raise ValueError(f"temperature = {params.temperature} must be ≥ 0 and top_p = {params.top_p} in (0, 1]")
        lengths = [len(prompt) for prompt in prompts]
        if min(lengths, default=1) == 0:
            raise ValueError(f"prompt number {lengths.index(0)} of the batch has no tokens")
        longest = max(lengths, default=0) + params.max_tokens
        if self._max_length is not None and longest > self._max_length:
            raise ValueError(
                f"a prompt of {max(lengths)} tokens and max_tokens = {params.max_tokens} exceed the "
                f"{self._max_length} positions of the model (max_position_embeddings)"
            )

    def _prefill(self, prompts: Sequence[NDArray[np.int32]], samples: int) -> tuple[Tensor, _Rows]:
        """Logits `[N · samples, V]` of the first token of every response, and the rows to go on from."""
        input_ids, attention_mask = (a.to(self._model.device) for a in _left_padded(prompts))
        positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache(config=self._model.config)
        logits = self._forward(input_ids, attention_mask, positions, cache)
        prompt_of_row = torch.arange(len(prompts), device=self._model.device).repeat_interleave(samples)
        rows = _Rows(prompt_of_row, attention_mask, positions[:, -1] + 1, cache)
        if samples > 1:
            rows, logits = rows.select(prompt_of_row), logits[prompt_of_row]
        rows.slots = torch.arange(len(prompt_of_row), device=self._model.device)
        return logits, rows

    def _decode(self, rows: _Rows, tokens: Tensor) -> Tensor:
        """Appends `tokens [A]` to the rows; logits `[A, V]` of the tokens that follow."""
        rows.attention_mask = torch.nn.functional.pad(rows.attention_mask, (0, 1), value=1)
        logits = self._forward(tokens[:, None], rows.attention_mask, rows.positions[:, None], rows.cache)
        rows.positions = rows.positions + 1
        return logits

    def _forward(self, input_ids: Tensor, attention_mask: Tensor, positions: Tensor, cache: Cache) -> Tensor:
        """Logits `[A, V]` after the last of `input_ids [A, T]`, which are added to the cache."""
        logits: Tensor = self._model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_argument: cache},
        ).logits
        return logits[:, -1]


@dataclass(slots=True)
class _Rows:
    """The A rows of the batch that is being decoded."""

    slots: Tensor
    """`[A]` number of the response that a row samples"""
    attention_mask: Tensor
    """`[A, T]` int64, 0 at the padding left of a prompt"""
    positions: Tensor
    """`[A]` position of the next token, counted from the first token of the prompt"""
    cache: Cache

    def select(self, kept: Tensor) -> _Rows:
        """The rows at `kept`, which may repeat; the cache is changed in place."""
        self.cache.reorder_cache(kept)  # type: ignore[arg-type]
        return _Rows(self.slots[kept], self.attention_mask[kept], self.positions[kept], self.cache)


class _Responses:
    """N responses of at most R tokens, filled column by column."""

    def __init__(self, n: int, max_tokens: int, device: torch.device) -> None:
        self._tokens = torch.zeros(n, max_tokens, dtype=torch.int32, device=device)
        self._logprobs = torch.zeros(n, max_tokens, dtype=torch.float32, device=device)
        self._lengths = torch.full((n,), max_tokens, device=device)
        self._unfinished_kept = True
        self.decoding = torch.ones(n, dtype=torch.bool, device=device)
        """`[N]` whether the response has not ended yet"""

    def append(self, slots: Tensor, step: int, tokens: Tensor, logprobs: Tensor) -> None:
        """Sets column `step` of the responses `slots [A]`. What lies behind the end of a response is never read."""
        self._tokens[slots, step] = tokens.int()
        self._logprobs[slots, step] = logprobs

    def latest(self, slots: Tensor, step: int, n: int) -> Tensor:
        """The last `n` tokens of the responses `slots [A]`, `[A, n]` int64, or all where there are fewer."""
        return self._tokens[slots, max(step + 1 - n, 0) : step + 1].long()

    def end(self, slots: Tensor, step: int, ended: Tensor) -> None:
        """With column `step`, those of the responses `slots [A]` that have `ended [A]`."""
        ending = slots[ended & self.decoding[slots]]
        self._lengths[ending] = step + 1
        self.decoding[ending] = False

    def drop_unfinished(self) -> None:
        self._unfinished_kept = False

    def rollouts(self, samples: int) -> list[list[Rollout]]:
        """One list for each prompt."""
        tokens, logprobs = self._tokens.cpu().numpy(), self._logprobs.cpu().numpy()
        lengths, truncated = self._lengths.tolist(), self.decoding.tolist()

        def rollout(i: int) -> Rollout:
            # Copies, so that a short response does not keep the whole batch in memory.
            return Rollout(tokens[i, : lengths[i]].copy(), logprobs[i, : lengths[i]].copy(), not truncated[i])

        return [
            [rollout(i) for i in range(start, start + samples) if self._unfinished_kept or not truncated[i]]
            for start in range(0, len(lengths), samples)
        ]


def _left_padded(prompts: Sequence[NDArray[np.int32]]) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask `[N, T]`, both int64, of prompts that all end in the last column."""
    lengths = np.array([len(prompt) for prompt in prompts])
    mask = np.arange(lengths.max()) >= (lengths.max() - lengths)[:, None]
    input_ids = np.zeros(mask.shape, np.int64)
    input_ids[mask] = np.concatenate(prompts)
    return torch.from_numpy(input_ids), torch.from_numpy(mask.astype(np.int64))
