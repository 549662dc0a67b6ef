"""From logits to one sampled token a row, and the log-probability it was sampled with."""

from __future__ import annotations

import torch
from torch import Tensor


def sample(logits: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens `[B]` int64 drawn from `logits [B, V]`, and their log-probabilities `[B]` float32 under the distribution
    drawn from: softmax(logits / temperature), restricted to its nucleus if `top_p` is below 1.

    A temperature of 0 takes the most likely token; its log-probability is then the one at temperature 1."""
    if temperature == 0:
        logprobs = logits.float().log_softmax(-1)
        tokens = logprobs.argmax(-1, keepdim=True)
    else:
        logprobs = (logits.float() / temperature).log_softmax(-1)
        if top_p < 1:
            logprobs = restrict_to_nucleus(logprobs, top_p)
        tokens = torch.multinomial(logprobs.exp(), 1, generator=generator)
    return tokens.squeeze(-1), logprobs.gather(-1, tokens).squeeze(-1)


def restrict_to_nucleus(logprobs: Tensor, top_p: float) -> Tensor:
    """`logprobs [B, V]` of the distribution restricted to the fewest most likely tokens whose probabilities reach
    `top_p` together, at least one: −∞ outside, renormalised inside."""
    ordered, order = logprobs.sort(dim=-1, descending=True)
    probabilities = ordered.exp()
    mass_before = probabilities.cumsum(-1) - probabilities
    ordered = ordered.masked_fill(mass_before >= top_p, -torch.inf)
    return torch.empty_like(logprobs).scatter(-1, order, ordered).log_softmax(-1)
